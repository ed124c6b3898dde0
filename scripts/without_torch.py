"""A plugin of pytest for an environment without torch: what needs it is left out and counted, and nothing else is.

    python -m pytest -p scripts.without_torch

Owns: telling a test that needs what only training needs from one that fails. Refuses: forgiving those that must do
without it: an import of torch by proxy, recorder or judge stays an error, and so does a child that ends for want of it.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
NEEDED_TO_TRAIN: Final = ("torch", "transformers", "peft")
LEFT_OUT: Final = "left out, as there is no"  # said of nothing else
# Whose imports of them are meant. The rest is the base, which never asks for them (tests/test_imports.py).
_MAY_ASK: Final = ("tests", "trainer", "examples")
_FOLDERS: Final = (*_MAY_ASK, "proxy", "recorder", "judge", "scripts", "benchmarks")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that cannot be imported for want of them is skipped, and says so."""
    report = yield
    if report.call is not None:
        _leave_out(report, report.call.excinfo, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that imports them, or whose fixture does, is skipped likewise."""
    report = yield
    _leave_out(report, call.excinfo, item.path)
    return report


def _leave_out(
    report: pytest.CollectReport | pytest.TestReport, error: pytest.ExceptionInfo[BaseException] | None, path: Path
) -> None:
    missing = wanting(error.value) if report.failed and error is not None else None
    if missing is not None:
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"Skipped: {LEFT_OUT} {missing}")


def wanting(error: BaseException) -> str | None:
    """Which of them is missing, where one that may ask for it did; None: the error is another."""
    while not isinstance(error, ModuleNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # pytest's own, of a file or a conftest.py that cannot be imported
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in NEEDED_TO_TRAIN or find_spec(name) is not None:
        return None
    return name if asker(error) in _MAY_ASK else None


def asker(error: BaseException) -> str | None:
    """The top-level folder of the last file of ours on the way to the import, which a library may make for it."""
    folder, trace = None, error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in _FOLDERS:
            folder = file.relative_to(ROOT).parts[0]
        trace = trace.tb_next
    return folder
