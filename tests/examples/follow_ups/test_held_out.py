"""Success over time, and when it reached the target."""

from __future__ import annotations

import asyncio
import time

from examples.live.follow_ups.held_out import HeldOutPoint, measure_over_time, seconds_to
from examples.live.summary import Share, share


def point(second: float, right: int, of: int = 200) -> HeldOutPoint:
    return HeldOutPoint(second, share([True] * right + [False] * (of - right)))


def test_the_target_is_reached_where_it_was_first_measured_although_success_fell_again() -> None:
    points = [point(0, 60), point(120, 169), point(240, 170), point(360, 150), point(480, 199)]
    assert seconds_to(points) == 240
    assert seconds_to(points, 0.99) == 480
    assert seconds_to(points[:2]) is None
    assert seconds_to([point(0, 0, 0)]) is None


async def test_it_is_measured_again_and_again_and_a_point_is_the_middle_of_its_measurement() -> None:
    points: list[HeldOutPoint] = []
    enough = asyncio.Event()

    async def measure() -> Share:
        if len(points) == 2:
            enough.set()
        return share([True, False])

    running = asyncio.create_task(measure_over_time(measure, time.time() - 1, float("inf"), points, every_s=0.001))
    await enough.wait()
    running.cancel()
    assert [one.share.success for one in points[:2]] == [0.5, 0.5]
    assert 1 <= points[0].second <= points[1].second
    assert points[0].as_json()["runs"] == 2


async def test_the_end_is_not_measured_here() -> None:
    points: list[HeldOutPoint] = []

    async def measure() -> Share:
        return share([True])

    await measure_over_time(measure, 0.0, 240.0, points, every_s=240.0)
    assert points == []
