#!/usr/bin/env bash
# Creates .venv with everything that the demo and the tests need: Hone, vLLM's CPU build, torch, developer tools.
# It does nothing if .venv is up to date with pyproject.toml, constraints.txt and this script.
#
#     [PYTHON=…] scripts/setup.sh [FOLDER [EXTRAS]]        (`make setup`; `make pythons` names others)
#
# Without the extra cpu, torch is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${1:-.venv}
EXTRAS=${2:-cpu,dev}
TORCH=2.13.0+cpu
TORCH_CPU_WHEELS=https://download.pytorch.org/whl/cpu # PyTorch's CPU builds are not on the package index

new_enough() { command -v "$1" >/dev/null && "$1" -c 'import venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidates=(python3.11 python3.12 python3.13 python3)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON") # a given Python that does not work is an error
    for candidate in "${candidates[@]}"; do
        new_enough "$candidate" && echo "$candidate" && return
    done
    echo "Hone needs Python 3.11 or newer with the venv module. None of these is usable: ${candidates[*]}." >&2
    echo "Install one, or give its path: make setup PYTHON=/path/to/python3" >&2
    exit 1
}

fingerprint() { { echo "$EXTRAS" && cat pyproject.toml constraints.txt scripts/setup.sh; } | sha256sum | cut -d' ' -f1; }

stamp=$VENV/.hone-setup
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] && [ -x "$VENV/bin/hone" ]; then exit 0; fi

# Seconds between two lines about a step that runs. Lines have no control characters, whether or not there is a terminal.
EVERY=${SETUP_EVERY_S:-$([ -t 1 ] && [ -z "${CI:-}" ] && echo 5 || echo 15)}
steps=4 step=0 pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null' EXIT # Ctrl-C does not reach what a script runs in the background
trap 'exit 130' INT
trap 'exit 143' TERM

# What pip does now, from its output.
doing() { grep -aE '^ *(Collecting|Downloading|Using cached|Building|Preparing|Installing|Uninstalling) ' "$LOG" | tail -n 1 | sed 's|^ *||' | tr -cd '[:print:]' | cut -c1-90; }

# try TITLE COMMAND…: runs the command with its output in $LOG, and says how long it has run. Returns its status.
try() {
    local title=$1 began=$SECONDS said=$SECONDS status=0 now
    shift
    echo "== [$step/$steps] $title"
    "$@" >"$LOG" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - said)) -ge "$EVERY" ]; then
            said=$SECONDS now=$(doing) || now=
            echo "   [$step/$steps] $title: $((SECONDS - began)) s${now:+, $now}"
        fi
    done
    wait "$pid" || status=$?
    pid=
    return $status
}

# run TITLE COMMAND…: as try; a failure ends the script, with the end of the output.
run() {
    local status=0
    step=$((step + 1))
    try "$@" || status=$?
    [ $status -eq 0 ] && return
    echo "== [$step/$steps] $1 failed with status $status. The end of $LOG:" >&2
    tail -n 20 "$LOG" >&2
    exit $status
}

python=$(find_python)
mkdir -p "$VENV"
LOG=$VENV/setup.log
echo "== setting up $VENV with $("$python" --version) (a few minutes the first time; details are in $LOG)"
make_environment() {
    [ -x "$VENV/bin/python" ] || "$python" -m venv "$VENV"
    pip install --upgrade pip
}
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }
# pip would compile all modules on one core, which takes longer than the rest; `compile_modules` does it on all cores.
install() { pip install --progress-bar off --no-compile "$@"; }
run "environment and pip" make_environment

# If pip finds the CPU build in its own index (a mirror, a wheel folder), no further index is needed.
torch=() extra=()
case ,$EXTRAS, in *,cpu,*) torch=("torch==$TORCH") ;; esac
step=$((step + 1))
if [ ${#torch[@]} -gt 0 ] && ! "$VENV/bin/python" -c "import torch, sys; sys.exit(torch.__version__ != '$TORCH')" 2>/dev/null; then
    if ! try "torch" install --no-deps "${torch[@]}"; then
        extra=(--extra-index-url "$TORCH_CPU_WHEELS") step=$((step - 1))
        run "torch from $TORCH_CPU_WHEELS" install --no-deps "${extra[@]}" "${torch[@]}"
    fi
fi
run "Hone and what it needs" install --constraint constraints.txt "${extra[@]}" "${torch[@]}" --editable ".[$EXTRAS]"

# vLLM requires three packages that text models do not need. Without CPU builds of them, importing transformers fails.
if [ ${#torch[@]} -gt 0 ] && ! "$VENV/bin/python" -W ignore -c 'import torchvision' >/dev/null 2>&1; then
    pip uninstall --quiet --yes torchvision torchaudio torchcodec
fi
# Without bytecode the first commands take seconds longer, and under `-W error` a module may not even be imported: the
# compiler warns. What does not compile is imported by nobody, such as the Python 2 files of some packages.
# What few programs import is compiled then: tests of packages, and hundreds of models, providers and languages.
RARE='/(tests?|transformers/models|databricks/sdk/service|faker/providers|mypy|mypyc|pip)/'
compile_modules() {
    "$VENV/bin/python" -m compileall -q -j 0 proxy recorder judge trainer examples
    "$VENV/bin/python" -W ignore -m compileall -qq -j 0 -x "$RARE" "$VENV"/lib/python*/site-packages || true
}
run "bytecode" compile_modules
fingerprint >"$stamp"
echo "== set up in $SECONDS s: $("$VENV/bin/python" --version), ${torch[*]:-without torch}"
