"""One session: one arm, one seed. The programs around Hone, `hone up`, the users, and the result.

Owns the sequence. Refuses: what arms are (`examples.live.follow_ups.arms`), and which sessions run
(`examples.live.follow_ups.run`). Engine, proxy, judge and learner are the real programs.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from examples.helpdesk.orders import Orders, read_database
from examples.helpdesk.surroundings import surroundings
from examples.live.follow_ups.arms import ARMS, judge_of
from examples.live.follow_ups.held_out import AT_ONCE, HeldOutPoint, measure_now, measure_over_time
from examples.live.follow_ups.results import Measurement, Session, result_of, write_result
from examples.live.follow_ups.rewards import compare_with_truth, read_rewards
from examples.live.follow_ups.writers import Writers, writing_users
from examples.live.hone_up import hone_up
from examples.live.record import read_written
from examples.live.summary import MINUTE_S, Course, Share, share
from examples.live.telling import EventPrinter
from examples.live.traffic import arrivals, one_each, unique
from examples.live.users import ALIAS, Users, measure
from proxy.settings.loader import load_settings
from recorder.settings import RecorderSettings

RATE: Final = 2.5  # users a second: the questions last for more than 20 minutes


def run_session(session: Session, out: Path, telling: EventPrinter) -> dict[str, Any]:
    """Start everything, let users ask and write back, write result.json into `out`; return the result."""
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    arm = ARMS[session.arm]
    quiet = Console(quiet=True) if telling.as_json else telling.console
    with surroundings(out, session.seed, quiet, judge_of(arm)) as (files, found):
        orders = read_database(files.database)
        recording = load_settings(arm.config, {}).settings.recorder
        measurement = asyncio.run(_live(session, out, orders, found, recording, telling))
    result = result_of(measurement)
    write_result(out / "result.json", result)
    telling.say("ended", result_sentence(result))
    return result


async def _live(
    session: Session,
    out: Path,
    orders: Orders,
    found: dict[str, str],
    recording: RecorderSettings,
    telling: EventPrinter,
) -> Measurement:
    url, mcp_url = f"http://127.0.0.1:{found['HONE_PROXY__PORT']}", found["HELPDESK_MCP_URL"]
    arm = ARMS[session.arm]

    async def held_out() -> Share:
        asked = one_each(orders.heldout, random.Random(session.seed))
        measured = await measure(url, mcp_url, ALIAS, asked, AT_ONCE)
        telling.faults += [f"a held-out order: {run.fault}" for run in measured if run.fault]
        now = share(run.right for run in measured)
        telling.say("held out", f"{_percent(now.success)} of {now.runs} orders")
        return now

    telling.say("starting", f"arm {session.arm}, seed {session.seed}: engine, proxy, scripted judge and learner")
    async with hone_up(out, arm.config, os.environ | found, telling.hone):
        points = [HeldOutPoint(0.0, await held_out())]
        async with writing_users(url, mcp_url, session.seed, arm.shares, telling.run) as (population, writers):
            began, ended = await _traffic(session, orders, population, writers, points, held_out, telling)
        points.append(await measure_now(held_out, began))
        written = await read_written(out, recording)
        rewards = await read_rewards(out, recording)
    course = Course(began, ended, population.runs, written, telling.faults, telling.notes)
    return Measurement(session, course, points, writers.counts, compare_with_truth(rewards, population.runs))


async def _traffic(
    session: Session,
    orders: Orders,
    population: Users,
    writers: Writers,
    points: list[HeldOutPoint],
    held_out: Callable[[], Awaitable[Share]],
    telling: EventPrinter,
) -> tuple[float, float]:
    """Let users ask for the session's minutes; return when the first and the last one came (unix seconds)."""
    chance = random.Random(session.seed)
    seconds = session.minutes * MINUTE_S
    began = telling.began = time.time()
    writers.half_at = began + seconds / 2
    async with asyncio.TaskGroup() as group:
        beside = [
            group.create_task(_tell_minutes(telling)),
            group.create_task(measure_over_time(held_out, began, began + seconds, points)),
        ]
        await population.live(unique(orders.train, chance), arrivals(RATE, chance), began + seconds)
        for task in beside:
            task.cancel()
    return began, min(time.time(), began + seconds)


async def _tell_minutes(telling: EventPrinter) -> None:
    while True:
        await asyncio.sleep(MINUTE_S)
        telling.last_minute()


def result_sentence(result: dict[str, Any]) -> str:
    """Return a result in one sentence."""
    first, last, to = result["held_out"][0], result["held_out"][-1], result["seconds_to_target"]
    reached = f"{result['target']:.0%} not reached" if to is None else f"{result['target']:.0%} after {to:.0f} s"
    given, true = result["rewards"]["given"], result["rewards"]["true"]
    return (
        f"{result['arm']}, seed {result['seed']}: held-out orders {_percent(first['success'])} → "
        f"{_percent(last['success'])}, {reached}; {given} rewards, {true} of them true; {result['steps']} steps, "
        f"{result['versions_live']} versions live, {len(result['faults'])} faults"
    )


def _percent(success: float | None) -> str:
    return "none" if success is None else f"{success:.0%}"
