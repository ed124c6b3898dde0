#!/bin/sh
# Creates the Secret `hone` that the manifests use, with random keys and passwords. An existing Secret stays unchanged.
#
#     ./make-secret.sh JUDGE_KEY                  # one-gpu: PostgreSQL is one of its manifests
#     ./make-secret.sh JUDGE_KEY STORE_URL        # your PostgreSQL: postgresql+asyncpg://USER:PASSWORD@HOST:5432/DATABASE
#     ./make-secret.sh JUDGE_KEY STORE_URL KEY_ID SECRET    # bucket: adapters go through S3
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 JUDGE_KEY [STORE_URL [KEY_ID SECRET]]" >&2
    exit 2
fi

random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

password=$(random)
kubectl create --filename - <<SECRET
apiVersion: v1
kind: Secret
metadata:
  name: hone
  namespace: hone
type: Opaque
stringData:
  store-url: "${2:-postgresql+asyncpg://hone:$password@postgres:5432/hone}"
  postgres-password: "$password"
  engine-key: "$(random)"
  judge-key: "$1"
  agents-key: "hone_$(random)"
  metrics-key: "hone_$(random)"
  bucket-key-id: "${3:-}"
  bucket-secret: "${4:-}"
SECRET
