"""Put each of ten small defects into a copy of this tree, and check that the tests find it.

    python -m scripts.mutations [--suite "PYTEST ARGUMENTS"] [NAME …]

Owns: the copy, running the tests, and the table. Refuses: the defects (`mutations.toml`) and the tests. Exit status 1
if a defect is not caught. A failed test counts only if it passes without the defect. `--suite` replaces the arguments
that choose tests (`LEAN`), for example `--suite '-m "not slow" --hypothesis-profile quick'`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.junit_report import read

ROOT: Final = Path(__file__).resolve().parent.parent
DEFECTS: Final = ROOT / "scripts" / "mutations.toml"
LEAN: Final = '-m "not e2e and not agents and not long" --hypothesis-profile lean'
MOST: Final = 3  # failed tests to collect: more would add no information
_SHOWN: Final = 110  # characters of a test's name


@dataclass(frozen=True, slots=True)
class Mutation:
    """One defect: `new` in place of `old`. `tests`: pytest's arguments for the tests that can catch it."""

    name: str
    what: str
    file: str
    tests: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the file's text with the defect. Raises ValueError unless `old` occurs exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} has {self.old!r} {count} times, not once. Update the mutation.")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The tests that failed with the defect and pass without it."""

    mutation: Mutation
    catchers: tuple[str, ...]


def load_mutations() -> list[Mutation]:
    """Return all defects."""
    return [Mutation(**fields) for fields in tomllib.loads(DEFECTS.read_text("utf-8"))["mutation"]]


@contextmanager
def copied_tree(source: Path = ROOT) -> Iterator[Path]:
    """A temporary copy of the files that git tracks, and of new ones that it does not ignore, as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=source, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = Path(folder)
        for name in filter(None, names.split("\0")):
            if (source / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, root / name)
        if (source / ".venv").exists():
            (root / ".venv").symlink_to((source / ".venv").resolve())
        yield root


def run_tests(tree: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    """Run tests in a copy. Return those that failed, by pytest's names without parameters.

    Raises RuntimeError if pytest ran no tests.
    """
    report = tree / "build" / "mutations.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
    env = os.environ | {"PYTHONPATH": str(tree)}
    ended = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1, 2):  # 2: stopped, as by --maxfail under xdist
        raise RuntimeError(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    failed = [test.name.partition("[")[0].rpartition(".") for test in read(report) if test.outcome == "failed"]
    return tuple(dict.fromkeys(f"{module.replace('.', '/')}.py::{test}" for module, _, test in failed))


def try_mutation(mutation: Mutation, tree: Path, suite: Sequence[str]) -> Outcome:
    """Put a defect into the copy, run its tests, remove the defect, and run the failed tests again."""
    file = tree / mutation.file
    whole = file.read_text("utf-8")
    file.write_text(mutation.apply(whole), "utf-8")
    try:
        failed = run_tests(tree, [*suite, f"--maxfail={MOST}", *shlex.split(mutation.tests)])
    finally:
        file.write_text(whole, "utf-8")
    if not failed:
        return Outcome(mutation, ())
    options = [one for one in shlex.split(mutation.tests) if not one.startswith("tests/")]
    still = run_tests(tree, [*suite, *options, *failed])
    return Outcome(mutation, tuple(test for test in failed if test not in still))


def row(outcome: Outcome) -> str:
    """Return one line of the table."""
    count = len(outcome.catchers)
    caught = f"caught by {count}{'+' if count >= MOST else ''}" if count else "NOT CAUGHT"
    return f"{outcome.mutation.name:<26} {caught:<13} {(outcome.catchers or (outcome.mutation.tests,))[0][:_SHOWN]}"


def main(arguments: Sequence[str], write: Callable[[str], object] = sys.stdout.write) -> int:
    """Try all mutations, or the named ones. Return the exit status."""
    mutations = load_mutations()
    parser = argparse.ArgumentParser(prog="python -m scripts.mutations", description=__doc__)
    parser.add_argument("--suite", default=LEAN, help=f"pytest's arguments that choose tests (default: {LEAN})")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(one.name for one in mutations))
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - {one.name for one in mutations}):
        parser.error(f"unknown: {', '.join(unknown)}")
    chosen = [one for one in mutations if not options.names or one.name in options.names]
    missed = 0
    with copied_tree() as tree:
        for one in chosen:  # check before trying the first one, since each takes a while
            one.apply((tree / one.file).read_text("utf-8"))
        for one in chosen:
            outcome = try_mutation(one, tree, shlex.split(options.suite))
            missed += not outcome.catchers
            write(row(outcome) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
