"""`make live`: users ask, Hone learns from the traffic, and users get better answers, all on one machine.

    python -m examples.live.live [--minutes M] [--seed S] [--traffic repeats|unique|swapped-judge] [--out FOLDER]

Owns the sequence: the programs around Hone, `hone up`, the users, and the result (summary.json, a picture). Engine,
proxy, judge and learner are the real programs, started as a user would start them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from rich.console import Console

from examples.helpdesk.curve import save
from examples.helpdesk.orders import DEMO_SEED, Orders, read_database
from examples.helpdesk.surroundings import surroundings
from examples.live import picture
from examples.live.hone_up import hone_up
from examples.live.judges import RIGHT, WRONG, Seat
from examples.live.record import read_written
from examples.live.summary import MINUTE_S, Course, Share, share, summary
from examples.live.telling import EventPrinter
from examples.live.traffic import arrivals, one_each, repeats, unique
from examples.live.users import ALIAS, Users, measure, users
from examples.running.programs import new_run
from proxy.settings.display import as_environment
from proxy.settings.loader import load_settings
from recorder.settings import RecorderSettings

HERE: Final = Path(__file__).parent
RUNS: Final = Path("build") / "live"
SWAPPED_S: Final = 120.0

Traffic = Literal["repeats", "unique", "swapped-judge"]
RATES: Final[dict[Traffic, float]] = {"repeats": 4.0, "unique": 2.5, "swapped-judge": 4.0}  # trajectories a second

CONFIGS: Final[dict[Traffic, str]] = {
    "repeats": "hone.toml",
    "unique": "unique.toml",
    "swapped-judge": "swapped.toml",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The arguments of the command line."""

    minutes: float
    seed: int
    traffic: Traffic
    out: Path

    @property
    def config(self) -> Path:
        """Return the file with Hone's settings for this traffic."""
        return HERE / CONFIGS[self.traffic]


def main() -> None:
    """Run it. The exit status is 1 if something failed or nothing was learned."""
    parser = argparse.ArgumentParser(description="Hone learns from live traffic, on this machine.")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes during which users ask (10)")
    parser.add_argument("--seed", type=int, default=DEMO_SEED, help="seed of the orders and users")
    parser.add_argument("--traffic", choices=get_args(Traffic), default="repeats", help="what users ask (repeats)")
    parser.add_argument("--out", type=Path, help=f"data folder (default: a new folder in {RUNS})")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args()
    plan = Plan(given.minutes, given.seed, given.traffic, (given.out or new_run(RUNS)).resolve())
    os.umask(0o077)  # only the owner can read the recorded data
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    telling = EventPrinter(Console(highlight=False), given.json)
    try:
        found = run(plan, telling)
    except KeyboardInterrupt:
        telling.say("stopped", f"the recorded data is in {plan.out}")
        sys.exit(130)
    sys.exit(1 if found["faults"] or not found["versions_live"] else 0)


def run(plan: Plan, telling: EventPrinter) -> dict[str, Any]:
    """Start everything, let users ask, write summary.json and the picture; return the summary."""
    plan.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    seat = Seat() if plan.traffic == "swapped-judge" else None
    quiet = Console(quiet=True) if telling.as_json else telling.console
    with surroundings(plan.out, plan.seed, quiet, seat.taken if seat else None) as (files, found):
        orders = read_database(files.database)
        flags = held_out_flags(plan.traffic, files.heldout)
        recording = load_settings(plan.config, flags).settings.recorder
        course, held_out = asyncio.run(_live(plan, orders, found | as_environment(flags), recording, seat, telling))
    told = {
        "traffic": plan.traffic,
        "seed": plan.seed,
        "minutes": plan.minutes,
        "held_out": {name: asdict(one) for name, one in held_out.items()},
        **summary(course),
    }
    (plan.out / "summary.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    save(picture.draw(told), plan.out / "live.svg")
    telling.say("ended", _sentence(told))
    telling.say("ended", f"{plan.out / 'summary.json'}, live.svg beside it")
    return told


def held_out_flags(traffic: Traffic, heldout: Path) -> dict[str, object]:
    """Return the flags that no settings file can hold: the path of the gate's held-out orders, new for each session."""
    return {"aliases.helpdesk.gate.scenarios": str(heldout)} if traffic == "swapped-judge" else {}


async def _live(
    plan: Plan,
    orders: Orders,
    found: dict[str, str],
    recording: RecorderSettings,
    seat: Seat | None,
    telling: EventPrinter,
) -> tuple[Course, dict[str, Share]]:
    url, mcp_url = f"http://127.0.0.1:{found['HONE_PROXY__PORT']}", found["HELPDESK_MCP_URL"]
    telling.say("starting", "engine, proxy, judge and learner")
    async with hone_up(plan.out, plan.config, os.environ | found, telling.hone):
        held_out = {"before": await _held_out(plan, orders, url, mcp_url, telling)}
        async with users(url, mcp_url, random.Random(plan.seed), telling.run) as population:
            began, ended = await _traffic(plan, orders, population, seat, telling)
        held_out["after"] = await _held_out(plan, orders, url, mcp_url, telling)
        written = await read_written(plan.out, recording)
    return Course(began, ended, population.runs, written, telling.faults, telling.notes), held_out


async def _traffic(
    plan: Plan, orders: Orders, population: Users, seat: Seat | None, telling: EventPrinter
) -> tuple[float, float]:
    """Let users ask for the requested time, and return when all are answered: when the first and the last one came."""
    chance = random.Random(plan.seed)
    ask = unique if plan.traffic == "unique" else repeats
    began = telling.began = time.time()
    seconds = plan.minutes * MINUTE_S
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(_minutes(telling))]
        if seat is not None:
            beside.append(group.create_task(_swap(seat, seconds, telling)))
        await population.live(ask(orders.train, chance), arrivals(RATES[plan.traffic], chance), began + seconds)
        for task in beside:
            task.cancel()
    return began, min(time.time(), began + seconds)


async def _minutes(telling: EventPrinter) -> None:
    while True:
        await asyncio.sleep(MINUTE_S)
        telling.last_minute()


async def _swap(seat: Seat, seconds: float, telling: EventPrinter) -> None:
    """Use the wrong judge in the middle, for two minutes or a quarter of the time, whichever is less."""
    await asyncio.sleep(seconds / 2)
    telling.note("the judge is swapped for a wrong one")
    await asyncio.to_thread(seat.give_to, WRONG)
    await asyncio.sleep(min(SWAPPED_S, seconds / 4))
    telling.note("the right judge is back")
    await asyncio.to_thread(seat.give_to, RIGHT)


async def _held_out(plan: Plan, orders: Orders, url: str, mcp_url: str, telling: EventPrinter) -> Share:
    """Measure success on orders that no user asks about, by the version in service. New versions may still arrive."""
    asked = one_each(orders.heldout, random.Random(plan.seed))
    measured = await measure(url, mcp_url, ALIAS, asked)
    telling.faults += [f"a held-out order: {run.fault}" for run in measured if run.fault]
    return share(run.right for run in measured)


def _sentence(told: dict[str, Any]) -> str:
    before, after, held = told["first_version"], told["last_minute"], told["held_out"]
    return (
        f"{_percent(before)} of {before['runs']} right at first, {_percent(after)} of {after['runs']} in the last "
        f"minute; held-out orders {_percent(held['before'])} → {_percent(held['after'])}; {told['steps']} steps, "
        f"{told['versions_live']} versions live, {told['versions_refused']} rejected, {len(told['faults'])} faults"
    )


def _percent(one: dict[str, Any]) -> str:
    return "none" if one["success"] is None else f"{one['success']:.0%}"


if __name__ == "__main__":
    main()
