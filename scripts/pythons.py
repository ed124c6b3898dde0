"""Run the quick tests under every other Python of this machine, and print a table of the results.

    python -m scripts.pythons [3.12 …] -- PYTEST ARGUMENTS            (`make pythons`)

Each Python gets an environment of its own in build/pythons, with torch if a CPU build exists for that Python. Otherwise
only the tests that need torch are skipped, and the table names them (`scripts.without_torch`).

Owns: these environments, running the tests, and the table. Refuses: finding Pythons (`scripts.interpreters`), and which
tests are quick (the Makefile). Exit status 1 if something failed, or if there is no other Python: then no test ran.
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

from scripts.interpreters import Interpreter, other_interpreters
from scripts.junit_report import CaseResult, read
from scripts.without_torch import SKIPPED_WITHOUT

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "pythons"
_NO_BUILD: Final = "no CPU build of torch"


@dataclass(frozen=True, slots=True)
class PythonResult:
    """The result of one Python. `status`: pytest's exit status; `broken`: why pytest did not run."""

    python: Interpreter
    torch: str | None = None
    tests: tuple[CaseResult, ...] = ()
    status: int = 0
    broken: str = ""

    @property
    def counted(self) -> Counter[str]:
        """Return the number of tests by outcome; a skipped file counts as one."""
        return Counter("skipped without torch" if SKIPPED_WITHOUT in one.why else one.outcome for one in self.tests)

    @property
    def passed(self) -> bool:
        """Whether all tests passed, so that the package's classifiers may name this Python."""
        return not self.broken and self.status == 0 and self.counted["passed"] > 0


def run(python: Interpreter, arguments: Sequence[str]) -> PythonResult:
    """Create a Python's environment and run the tests in it, with pytest's own output."""
    folder = FOLDER / python.minor
    if not (_set_up(python, folder, "cpu,dev") or _set_up(python, folder, "dev")):
        return PythonResult(python, broken="its environment could not be created")
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-p", "scripts.without_torch", f"--junitxml={report}"]
    status = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode
    if not report.exists():
        return PythonResult(python, broken=f"pytest ended with {status} without a report")
    return PythonResult(python, _torch(folder), tuple(read(report)), status)


def _set_up(python: Interpreter, folder: Path, extras: str) -> bool:
    command = [str(ROOT / "scripts" / "setup.sh"), str(folder), extras]
    return subprocess.run(command, env=os.environ | {"PYTHON": str(python.program)}, check=False).returncode == 0


def _torch(folder: Path) -> str | None:
    code = "import torch; print(torch.__version__)"
    done = subprocess.run([folder / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def table(results: Sequence[PythonResult]) -> str:
    """Return the table for the end of the output."""
    width = max((len(str(one.python)) for one in results), default=0)
    lines = [f"Python {one.python!s:<{width}}  {_row(one)}" for one in results]
    for one in results:
        lines += [f"  failed under {one.python}: {test.name}" for test in one.tests if test.outcome == "failed"]
    skipped = sorted({test.name for one in results for test in one.tests if SKIPPED_WITHOUT in test.why})
    if skipped:
        lines += ["Skipped without torch:", *(f"  {name}" for name in skipped)]
    return "\n".join(lines)


def _row(one: PythonResult) -> str:
    if one.broken:
        return f"NOT RUN: {one.broken}"
    counted = one.counted
    ends = ", ".join(
        f"{counted[end]} {end}" for end in ("passed", "failed", "skipped", "skipped without torch") if counted[end]
    )
    torch = f"torch {one.torch}" if one.torch else _NO_BUILD
    return f"{'passed' if one.passed else 'FAILED'}: {ends or 'no test ran'} ({torch})"


def main(arguments: Sequence[str]) -> int:
    """Run the tests and print the table. Return the exit status."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    versions, given = arguments[:at], arguments[at + 1 :]
    interpreters = other_interpreters()
    missing = sorted(set(versions) - {one.minor for one in interpreters})
    pythons = [one for one in interpreters if not versions or one.minor in versions]
    if missing or not pythons:
        named = ", ".join(missing) or "other Python from 3.11 on"
        sys.stdout.write(f"No {named} works on this machine (searched: PATH, pyenv, uv): no test ran.\n")
        return 1
    results = [run(python, given) for python in pythons]
    sys.stdout.write(table(results) + "\n")
    return 0 if all(one.passed for one in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
