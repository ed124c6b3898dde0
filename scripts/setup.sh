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

python=$(find_python)
[ -x "$VENV/bin/python" ] || "$python" -m venv "$VENV"
echo "== setting up $VENV with $("$VENV/bin/python" --version) (a few minutes the first time)"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }
pip install --quiet --upgrade pip

# If pip finds the CPU build in its own index (a mirror, a wheel folder), no further index is needed.
torch=() extra=()
case ,$EXTRAS, in *,cpu,*) torch=("torch==$TORCH") ;; esac
if [ ${#torch[@]} -gt 0 ] && ! "$VENV/bin/python" -c "import torch, sys; sys.exit(torch.__version__ != '$TORCH')" 2>/dev/null; then
    pip install --quiet --no-deps "${torch[@]}" 2>/dev/null ||
        { extra=(--extra-index-url "$TORCH_CPU_WHEELS") && pip install --quiet --no-deps "${extra[@]}" "${torch[@]}"; }
fi
pip install --quiet --constraint constraints.txt "${extra[@]}" "${torch[@]}" --editable ".[$EXTRAS]"

# vLLM requires three packages that text models do not need. Without CPU builds of them, importing transformers fails.
if [ ${#torch[@]} -gt 0 ] && ! "$VENV/bin/python" -W ignore -c 'import torchvision' >/dev/null 2>&1; then
    pip uninstall --quiet --yes torchvision torchaudio torchcodec
fi
fingerprint >"$stamp"
echo "== set up: $("$VENV/bin/python" --version), ${torch[*]:-without torch}"
