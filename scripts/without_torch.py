"""A pytest plugin for an environment without torch: it skips and counts only the tests that need torch.

    python -m pytest -p scripts.without_torch

Owns: distinguishing a test that needs a training package from a failing test. Refuses: skipping tests of code that must
not need them: an import of torch by proxy, recorder or judge stays an error, and so does a child that ends without it.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
NEEDED_TO_TRAIN: Final = ("torch", "transformers", "peft")
SKIPPED_WITHOUT: Final = "skipped, because the environment lacks"  # identifies these skips in a report
# Folders that may import them. The rest is the base, which never imports them (tests/test_imports.py).
_MAY_IMPORT: Final = ("tests", "trainer", "examples")
_FOLDERS: Final = (*_MAY_IMPORT, "proxy", "recorder", "judge", "scripts", "benchmarks")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that cannot be imported without them, with the reason."""
    report = yield
    if report.call is not None:
        _skip(report, report.call.excinfo, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that imports them, or with a fixture that does."""
    report = yield
    _skip(report, call.excinfo, item.path)
    return report


def _skip(
    report: pytest.CollectReport | pytest.TestReport, error: pytest.ExceptionInfo[BaseException] | None, path: Path
) -> None:
    missing = missing_package(error.value) if report.failed and error is not None else None
    if missing is not None:
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"Skipped: {SKIPPED_WITHOUT} {missing}")


def missing_package(error: BaseException) -> str | None:
    """Return the missing package, if a folder that may import it did; None for any other error."""
    while not isinstance(error, ModuleNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # pytest's own, of a file or a conftest.py that cannot be imported
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in NEEDED_TO_TRAIN or find_spec(name) is not None:
        return None
    return name if importing_folder(error) in _MAY_IMPORT else None


def importing_folder(error: BaseException) -> str | None:
    """Return the top-level folder of our last file in the traceback; a library may do the import itself."""
    folder, trace = None, error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in _FOLDERS:
            folder = file.relative_to(ROOT).parts[0]
        trace = trace.tb_next
    return folder
