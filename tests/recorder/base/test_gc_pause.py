"""The garbage collector is off inside the block alone, and as before after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from recorder.base.gc_pause import pause_gc, rest_gc


@pytest.fixture(autouse=True)
def _collector_stays_on() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_pauses_inside_and_runs_after_an_error() -> None:
    inside: list[bool] = []

    def import_what_is_missing() -> None:
        with pause_gc():
            inside.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        import_what_is_missing()
    assert (inside, gc.isenabled()) == ([False], True)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with pause_gc(), pause_gc():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_collector_at_rest_collects_seldom_and_as_before_after_an_error() -> None:
    before, inside = gc.get_threshold(), []

    def import_what_is_missing() -> None:
        with rest_gc():
            inside.append(gc.get_threshold())
            raise ImportError

    with pytest.raises(ImportError):
        import_what_is_missing()
    assert inside[0][0] > 10 * before[0]
    assert (gc.isenabled(), gc.get_threshold()) == (True, before)
