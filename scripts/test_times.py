"""Measure where the tests spend their time: a pytest plugin that writes one JSON line for each test.

    pytest -p scripts.test_times …        (HONE_TEST_TIMES names the file; without it build/test_times.jsonl)
    python -m scripts.test_times FILE     (sums them by file: wall, CPU, waiting, starting)
    python -m scripts.test_times FILE --write-heavy     (writes the list of heavy tests: tests/heavy_tests.txt)

A line has the seconds of set-up, call and teardown, and the CPU seconds of the test's process and of the programs below
it, whether they ended meanwhile or run on: of an engine that tests share, each test has what the engine used meanwhile.
Waiting is wall time less CPU time; starting is the set-up's share of it.

Heavy is a test function whose cases use 0.2 CPU seconds or more in all, but for a few that every change must pass.
`make check` omits heavy tests; all other suites run them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

_FILE: Final = "HONE_TEST_TIMES"
_SHOWN: Final = 40
HEAVY_TESTS: Final = Path(__file__).parent.parent / "tests" / "heavy_tests.txt"
_HEAVY_S: Final = 0.2  # CPU seconds of all cases of a function
# What a change breaks most often: names, and imports between packages.
_ALWAYS: Final = ("tests/test_names.py::", "tests/test_imports.py::test_packages_import_only_what_the_table_allows")
_phases: Final = pytest.StashKey[dict[str, float]]()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all programs below it, running or ended.

    A program whose parent was killed is no longer below it: its seconds are lost, and a test may have less than none.
    """
    here = psutil.Process()
    return sum(_used(one) for one in (here, *here.children(recursive=True)))


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it ended meanwhile: its parent has its seconds
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Time one whole test. Fixtures of its module or session count for the test that creates them."""
    phases = item.stash[_phases] = dict[str, float]()
    began, used = time.perf_counter(), cpu_seconds()
    result = yield
    seconds = {"wall": time.perf_counter() - began, "cpu": cpu_seconds() - used}
    _write({"test": item.nodeid, **phases, **{name: round(value, 4) for name, value in seconds.items()}})
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Record the duration of each phase."""
    phases = item.stash[_phases]
    phases[call.when] = round(call.duration, 4)
    return (yield)


def _write(line: dict[str, object]) -> None:
    path = Path(os.environ.get(_FILE, "build/test_times.jsonl"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def heavy_tests(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the test functions that are heavy by these lines, sorted: node ids without the cases' parameters."""
    used: dict[str, float] = defaultdict(float)
    for line in lines:
        used[without_case(line["test"])] += line["cpu"]
    return sorted(test for test, seconds in used.items() if seconds >= _HEAVY_S and not test.startswith(_ALWAYS))


def without_case(test: str) -> str:
    """Return a node id without the parameters of its case."""
    return test.partition("[")[0]


def _print_sums(lines: Iterable[Mapping[str, Any]]) -> None:
    """Print the sums of all tests, then of the slowest test files."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in lines:
        for key in ("all", line["test"].partition("::")[0]):
            total = sums[key]
            total["tests"] += 1
            total["wall"] += line["wall"]
            total["cpu"] += line["cpu"]
            total["starting"] += line.get("setup", 0.0)
    sys.stdout.write(f"{'tests':>6} {'wall s':>8} {'CPU s':>8} {'waiting s':>9} {'set-up s':>8}\n")
    for key, total in sorted(sums.items(), key=lambda entry: -entry[1]["wall"])[:_SHOWN]:
        waiting = max(0.0, total["wall"] - total["cpu"])
        figures = (
            f"{total['tests']:6.0f} {total['wall']:8.1f} {total['cpu']:8.1f} {waiting:9.1f} {total['starting']:8.1f}"
        )
        sys.stdout.write(f"{figures} {key}\n")


def main() -> None:
    """Print the sums of a file of lines, or write the list of heavy tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--write-heavy", action="store_true", help=f"write {HEAVY_TESTS.name}")
    asked = parser.parse_args()
    lines = [json.loads(text) for text in asked.file.read_text().splitlines()]
    if asked.write_heavy:
        HEAVY_TESTS.write_text("".join(f"{test}\n" for test in heavy_tests(lines)))
    else:
        _print_sums(lines)


if __name__ == "__main__":
    main()
