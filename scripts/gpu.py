"""Run the tests that need a GPU on this machine, and print each test, its duration and the device.

    python -m scripts.gpu            (`make gpu`)

The engines of these tests are those of this environment, and again of the newest vLLM, in an environment of its own in
build/newest-vllm.

Owns: that environment, running the tests and the report. Refuses: the tests (marked `gpu`), and measuring speed
(`benchmarks/gpu_step.py`). Exit status 1 without a GPU: then no test ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import torch

from scripts.junit_report import CaseResult, read

ROOT = Path(__file__).resolve().parent.parent
NEWEST_VLLM: Final = ROOT / "build" / "newest-vllm"
_PACKAGES: Final = ("vllm", "transformers", "peft")


def device() -> str | None:
    """Return the GPU's name, memory, and torch and CUDA versions; None if torch finds no GPU."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    memory = f"{properties.total_memory / 2**30:.0f} GiB"
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return f"{properties.name}, {memory}, torch {torch.__version__} (CUDA {torch.version.cuda}), {packages}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def newest_vllm() -> dict[str, str]:
    """Install the newest vLLM in its own environment; the variable that names its Python. None if pip fails."""
    python = NEWEST_VLLM / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", NEWEST_VLLM], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", "vllm"]
    if subprocess.run(command, check=False).returncode != 0:
        sys.stdout.write("The newest vLLM could not be installed: the tests run with this environment's alone.\n")
        return {}
    return {"HONE_NEWEST_VLLM": str(python)}


def run(report: Path, variables: Mapping[str, str]) -> int:
    """Run the marked tests with these environment variables and their own output; return pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={report}", "tests"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=False).returncode


def format_report(results: Iterable[CaseResult], on: str) -> str:
    """Return the report."""
    tests = list(results)
    rows = [f"{one.outcome:<8} {one.seconds:7.1f} s  {one.name}" for one in tests]
    counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(t.outcome for t in tests).items()))
    return "\n".join([f"GPU: {on}", *rows, f"{counted or 'no test ran'}, {sum(t.seconds for t in tests):.1f} s"])


def main() -> int:
    """Run the tests and print the report. Return the exit status."""
    on = device()
    if on is None:
        message = f"No GPU: torch {torch.__version__} finds none, so no test ran."
        sys.stdout.write(f"{message} `hone doctor` lists what is installed.\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = run(report, newest_vllm())
        if report.exists():
            sys.stdout.write(format_report(read(report), on) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
