#!/bin/sh
# Makes what compose.yaml needs and no repository may hold: passwords and keys, once. What is there stays.
#
#     ./prepare.sh cpu|gpu && docker compose up
#
# .env has what containers get as variables. secrets/ has what they get as files: those are open to the containers'
# users, and closed to this machine's by the folder.
set -eu
cd "$(dirname "$0")"
umask 077

case "${1:-}" in
cpu | gpu) profile=$1 ;;
*)
    echo "usage: $0 cpu|gpu" >&2
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
    } >.env.new
    mv .env.new .env
elif ! grep -qx "COMPOSE_PROFILES=$profile" .env; then
    echo "$0: .env is there, of another profile: set COMPOSE_PROFILES=$profile in it, or remove it." >&2
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
