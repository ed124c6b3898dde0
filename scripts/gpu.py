"""The tests that need a GPU, run on this machine, and a report of them: which, how long each took, on which device.

    python -m scripts.gpu            (`make gpu`)

Owns: running them and the report. Refuses: the tests (marked `gpu`), and measuring speed (`benchmarks/gpu_step.py`).
Exit status 1 where there is no GPU: then nothing was run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from scripts.ran import Ran, read

ROOT = Path(__file__).resolve().parent.parent


def device() -> str | None:
    """The GPU that tests run on, with its memory and what drives it. None: torch sees none."""
    if not torch.cuda.is_available():
        return None
    seen = torch.cuda.get_device_properties(0)
    memory = f"{seen.total_memory / 2**30:.0f} GiB"
    return f"{seen.name}, {memory}, torch {torch.__version__} (CUDA {torch.version.cuda})"


def run(report: Path) -> int:
    """Run the marked tests, with their own output; returns pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={report}", "tests"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def told(ran: Iterable[Ran], on: str) -> str:
    """The report."""
    tests = list(ran)
    rows = [f"{one.outcome:<8} {one.seconds:7.1f} s  {one.name}" for one in tests]
    counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(t.outcome for t in tests).items()))
    return "\n".join([f"GPU: {on}", *rows, f"{counted or 'no test ran'}, {sum(t.seconds for t in tests):.1f} s"])


def main() -> int:
    """Run and report; returns the exit status."""
    on = device()
    if on is None:
        seen = f"No GPU: torch {torch.__version__} sees none, and nothing was run."
        sys.stdout.write(f"{seen} `hone doctor` says what is installed.\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = run(report)
        if report.exists():
            sys.stdout.write(told(read(report), on) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
