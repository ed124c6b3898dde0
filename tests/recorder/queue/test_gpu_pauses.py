"""What pauses of an engine for training cost, and when the next one may begin."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.queue.training.gpu_pauses import (
    ASLEEP,
    AWAKE,
    REFILLED,
    EnginePause,
    merge_pauses,
    read_budget,
    seconds_until_pause,
)

LIMIT = 0.05  # 180 s of an hour
AT = 100_000.0


def pause(ended_s_ago: float, seconds: float, *, epoch: int = 0, url: str = "a", refill_s: float = 0.0) -> EnginePause:
    ended = AT - ended_s_ago
    return EnginePause(url, epoch or round(ended_s_ago) + 1, "trainer", ended - seconds, ended, refill_s)


@pytest.mark.parametrize(
    ("pauses", "free_in_s"),
    [
        ([], 0),
        ([pause(10, 60)], 0),
        ([pause(1200, 60), pause(10, 60)], 0),  # with the next one 180 s
        ([pause(1200, 60), pause(600, 60), pause(10, 60)], 2400),  # the first one leaves the hour in 2400 s
        ([pause(3700, 60), pause(600, 60), pause(10, 60)], 0),
        ([pause(10, 300)], 5990),  # a long one has a window of its own, 6000 s, of which it takes 5 %
        ([pause(6001, 300)], 0),
        ([pause(10, 40, refill_s=50), pause(5, 90)], 3590),  # a refill counts
        ([pause(10, 90, epoch=1, url="a"), pause(10, 90, epoch=1, url="b")], 0),  # they paused together
    ],
)
def test_the_next_pause_waits_until_the_hour_has_room_for_it(pauses: list[EnginePause], free_in_s: float) -> None:
    assert seconds_until_pause(pauses, LIMIT, AT) == pytest.approx(free_in_s, abs=0.01)


@pytest.mark.parametrize("seconds", [5.0, 70.0, 180.0, 400.0])
def test_no_hour_has_more_pauses_than_allowed(seconds: float) -> None:
    pauses: list[EnginePause] = []
    at = 0.0
    while at < 100_000:
        at += seconds_until_pause(pauses, LIMIT, at)
        pauses.append(EnginePause("a", len(pauses), "trainer", at, at + seconds))
        at += seconds
    window = max(3600.0, seconds / LIMIT)
    for number, one in enumerate(pauses):
        end = one.began_at + seconds
        inside = [max(0.0, each.began_at + seconds - max(each.began_at, end - window)) for each in pauses[: number + 1]]
        assert sum(inside) <= LIMIT * window + 1e-3
    assert len(pauses) * seconds > 0.6 * LIMIT * 100_000  # and it does not wait for longer than it has to


def test_a_budget_tells_of_the_last_hour_and_the_last_pause() -> None:
    budget = read_budget([pause(5000, 70), pause(100, 30, refill_s=6)], LIMIT, AT)
    assert (budget.pauses, budget.seconds, budget.refill_s, budget.last_s) == (1, 36.0, 6.0, 36.0)
    assert (budget.share, budget.free_in_s) == (0.01, 0.0)
    assert read_budget([], LIMIT, AT).pauses == 0


def test_rows_of_the_ledger_become_pauses_whoever_wrote_them() -> None:
    asleep: dict[str, Any] = {"epoch": 3, "owner": "t", "began_at": 5.0, "free_mib": [7]}
    rows: list[tuple[str, str, dict[str, Any], float]] = [
        ("a", AWAKE, {"epoch": 2}, 1.0),  # its beginning is beyond the rows that were read
        ("a", ASLEEP, asleep, 6.0),
        ("b", ASLEEP, {**asleep, "began_at": 5.5, "free_mib": None}, 6.1),
        ("a", ASLEEP, {**asleep, "began_at": 9.0}, 9.5),  # it restarted meanwhile, and slept again
        ("a", AWAKE, {"epoch": 3}, 11.0),
        ("a", AWAKE, {"epoch": 3, "why": "again"}, 12.0),
        ("a", REFILLED, {"epoch": 3, "seconds": 0.5, "tokens": 9}, 70.0),
    ]
    first, second = merge_pauses(rows)
    assert first == EnginePause("a", 3, "t", 5.0, 11.0, 0.5, [7])
    assert second == EnginePause("b", 3, "t", 5.5, None, 0.0, None)
    assert (first.seconds(20), second.seconds(20)) == (6.5, 14.5)
