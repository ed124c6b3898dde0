"""The quick tests under every other Python of this machine, and a table of what ran, passed and was left out.

    python -m scripts.pythons [3.12 …] -- PYTEST'S ARGUMENTS            (`make pythons`)

Each gets an environment of its own in build/pythons. It has torch where a CPU build of it can be had for that Python;
elsewhere the tests that need one are left out and named (`scripts.without_torch`), and nothing else is.

Owns: these environments, the runs and the table. Refuses: finding Pythons (`scripts.interpreters`), and which tests are
quick (the Makefile). Exit status 1 where something failed, and where there is no other Python: then nothing was run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.interpreters import Interpreter, others
from scripts.ran import Ran, read
from scripts.without_torch import LEFT_OUT

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "pythons"
_NO_BUILD: Final = "no CPU build of torch was to be had"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one Python. `status`: pytest's; `broken`: why there was none."""

    python: Interpreter
    torch: str | None = None
    tests: tuple[Ran, ...] = ()
    status: int = 0
    broken: str = ""

    @property
    def counted(self) -> Counter[str]:
        """Tests by their end; a file that needs torch is one."""
        return Counter("left out" if LEFT_OUT in one.why else one.outcome for one in self.tests)

    @property
    def passed(self) -> bool:
        """Whether it is one of those that the classifiers may name."""
        return not self.broken and self.status == 0 and self.counted["passed"] > 0


def run(python: Interpreter, arguments: Sequence[str]) -> Run:
    """Make the environment of a Python and run the tests in it, with their own output."""
    folder = FOLDER / python.minor
    if not (_set_up(python, folder, "cpu,dev") or _set_up(python, folder, "dev")):
        return Run(python, broken="its environment could not be made")
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-p", "scripts.without_torch", f"--junitxml={report}"]
    status = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
    if not report.exists():
        return Run(python, broken=f"pytest ended with {status} and without a report")
    return Run(python, _torch(folder), tuple(read(report)), status)


def _set_up(python: Interpreter, folder: Path, extras: str) -> bool:
    command = [str(ROOT / "scripts" / "setup.sh"), str(folder), extras]
    return subprocess.run(command, env=os.environ | {"PYTHON": str(python.program)}, check=False).returncode == 0


def _torch(folder: Path) -> str | None:
    asked = "import torch; print(torch.__version__)"
    done = subprocess.run([folder / "bin" / "python", "-I", "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def table(runs: Sequence[Run]) -> str:
    """What is told of them at the end."""
    width = max((len(str(one.python)) for one in runs), default=0)
    lines = [f"Python {one.python!s:<{width}}  {_row(one)}" for one in runs]
    for one in runs:
        lines += [f"  failed under {one.python}: {test.name}" for test in one.tests if test.outcome == "failed"]
    left_out = sorted({test.name for one in runs for test in one.tests if LEFT_OUT in test.why})
    if left_out:
        lines += ["Left out without torch:", *(f"  {name}" for name in left_out)]
    return "\n".join(lines)


def _row(one: Run) -> str:
    if one.broken:
        return f"NOT RUN: {one.broken}"
    counted = one.counted
    ends = ", ".join(f"{counted[end]} {end}" for end in ("passed", "failed", "skipped", "left out") if counted[end])
    torch = f"torch {one.torch}" if one.torch else _NO_BUILD
    return f"{'passed' if one.passed else 'FAILED'}: {ends or 'no test ran'} ({torch})"


def main(arguments: Sequence[str]) -> int:
    """Run, and tell; returns the exit status."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    wanted, given = arguments[:at], arguments[at + 1 :]
    there = others()
    missing = sorted(set(wanted) - {one.minor for one in there})
    pythons = [one for one in there if not wanted or one.minor in wanted]
    if missing or not pythons:
        named = ", ".join(missing) or "other Python from 3.11 on"
        sys.stdout.write(f"No {named} runs on this machine (PATH, pyenv and uv were looked at): nothing was run.\n")
        return 1
    runs = [run(python, given) for python in pythons]
    sys.stdout.write(table(runs) + "\n")
    return 0 if all(one.passed for one in runs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
