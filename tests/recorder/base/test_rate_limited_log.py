"""Errors that repeat: one line a while, and how many were held back."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from recorder.base import rate_limited_log
from recorder.base.rate_limited_log import EVERY_S, RateLimitedLog


def test_the_first_line_and_later_one_a_while_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(rate_limited_log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    failing, other = RateLimitedLog(logging.getLogger("a")), RateLimitedLog(logging.getLogger("a"))
    for n in range(4):
        failing(logging.WARNING, "away: %s", n)
    other(logging.ERROR, "broken")
    now[0] = EVERY_S
    failing(logging.WARNING, "away: %s", 4)
    failing(logging.WARNING, "away: %s", 5)
    assert [record.getMessage() for record in caplog.records] == [
        "away: 0",
        "broken",
        "away: 4 (3 more like this were not logged)",
    ]
