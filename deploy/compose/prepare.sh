#!/bin/sh
# Creates the passwords and keys for compose.yaml, which must not be in a repository. Existing ones stay unchanged.
#
#     ./prepare.sh cpu|gpu|gpus && docker compose up
#
# .env holds variables for the containers, secrets/ holds files for them. The containers' users can read these files; the
# folder's mode keeps this machine's other users out.
set -eu
cd "$(dirname "$0")"
umask 077

case "${1:-}" in
cpu | gpu | gpus) profile=$1 ;;
*)
    echo "usage: $0 cpu|gpu|gpus" >&2
    exit 2
    ;;
esac

random() { head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

if [ ! -e .env ]; then
    {
        echo "COMPOSE_PROFILES=$profile"
        echo "POSTGRES_PASSWORD=$(random)"
        echo "ENGINE_KEY=$(random)"
        echo "GRAFANA_PASSWORD=$(random)"
        if [ "$profile" = gpus ]; then echo "ENGINE_SHARE=0.9"; fi # the engine has a GPU of its own
    } >.env.new
    mv .env.new .env
elif ! grep -qx "COMPOSE_PROFILES=$profile" .env; then
    echo "$0: .env exists and is for another profile: set COMPOSE_PROFILES=$profile in it, or delete it." >&2
    exit 1
fi

mkdir -p secrets
for key in agents metrics; do
    if [ ! -e "secrets/$key-key" ]; then
        printf 'hone_%s' "$(random)" >"secrets/$key-key.new"
        chmod 0644 "secrets/$key-key.new"
        mv "secrets/$key-key.new" "secrets/$key-key"
    fi
done
echo "Agents' key: deploy/compose/secrets/agents-key. Grafana's password: GRAFANA_PASSWORD in deploy/compose/.env."
