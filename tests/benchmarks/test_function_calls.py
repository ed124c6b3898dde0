"""A recorded call needs no more function calls than the committed number, which may only fall."""

from __future__ import annotations

import sys

import orjson
import pytest

from benchmarks import function_calls

SLACK = 0.02  # below the committed number


@pytest.mark.slow
def test_a_recorded_call_needs_no_more_function_calls_than_the_committed_number() -> None:
    committed = orjson.loads(function_calls.RESULTS.read_bytes())
    version = committed["setup"]["version"].rsplit(".", 1)[0]
    if version != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"the committed number is of Python {version}: others inline other functions")
    counted = function_calls.count(80)
    how = "run `python -m benchmarks.function_calls` to see them"
    assert counted.python <= committed["python"], how
    assert counted.in_all <= committed["in_all"], how
    assert counted.in_all >= (1 - SLACK) * committed["in_all"], "commit the lower number: add --save"


def test_the_figure_is_that_of_a_request_which_no_timer_met() -> None:
    assert function_calls._undisturbed([1000] * 3 + [1010] * 27) == 1010
    assert function_calls._undisturbed([1000] * 4 + [1900] * 26) == 1000
