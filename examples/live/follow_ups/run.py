"""`make live TRAFFIC=followups` and `TRAFFIC=corrections`: the sessions that are not measured yet, one after another.

    python -m examples.live.follow_ups.run [--traffic followups|corrections] [--arms A,B] [--seed S]
        [--minutes M] [--out FOLDER]

Owns: the command line, which sessions run, and which results are kept: those of whole sessions without a fault.
Refuses: one session (`examples.live.follow_ups.session`).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from rich.console import Console

from examples.helpdesk.orders import DEMO_SEED
from examples.live.follow_ups import table
from examples.live.follow_ups.arms import ARMS, OF_TRAFFIC, ArmName, Traffic
from examples.live.follow_ups.results import MINUTES, Session, is_learned, sessions_left, write_result
from examples.live.follow_ups.session import run_session
from examples.live.telling import EventPrinter
from examples.running.programs import new_run

RUNS: Final = Path("build") / "live"


def parse_arms(text: str) -> list[ArmName]:
    """Return the arms of a list with commas. Raises argparse.ArgumentTypeError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ARMS]:
        raise argparse.ArgumentTypeError(f"there is no arm {unknown[0]!r}: take some of {', '.join(ARMS)}")
    return [name for name in ARMS if name in names]


def sessions_of(traffic: Traffic, arms: Sequence[ArmName] | None, seed: int, minutes: float) -> list[Session]:
    """Return the sessions that the command line asks for. `arms` None: all of the traffic."""
    return [Session(arm, seed, minutes) for arm in arms or OF_TRAFFIC[traffic]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sessions that are left. Return 1 if one had a fault or learned nothing."""
    parser = argparse.ArgumentParser(description="Hone learns from what users write next, on this machine.")
    parser.add_argument("--traffic", choices=get_args(Traffic), default="followups", help="the arms (followups)")
    parser.add_argument("--arms", type=parse_arms, help="some arms only, with commas (all of the traffic)")
    parser.add_argument("--seed", type=int, default=DEMO_SEED, help=f"seed of orders and users ({DEMO_SEED})")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"minutes of each session ({MINUTES:.0f})")
    parser.add_argument("--out", type=Path, help=f"data folder of each session, ARM-SEED in it (new ones in {RUNS})")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args(arguments)
    os.umask(0o077)  # only the owner can read the recorded data
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    console = Console(highlight=False)
    wanted = sessions_of(given.traffic, given.arms, given.seed, given.minutes)
    left = sessions_left(wanted)
    for session in wanted:
        if session not in left:
            console.print(f"{session.arm}, seed {session.seed}: measured already, in {session.path()}", soft_wrap=True)
    proved = True
    try:
        for session in left:
            out = new_run(RUNS) if given.out is None else given.out / session.name
            proved &= _run(session, out.resolve(), EventPrinter(console, given.json))
    except KeyboardInterrupt:
        return 130
    return 0 if proved else 1


def _run(session: Session, out: Path, telling: EventPrinter) -> bool:
    """Run one session; keep its result if it is whole. False: it had a fault, or learned nothing."""
    result = run_session(session, out, telling)
    telling.say("ended", f"{out / 'result.json'}")
    if not is_learned(result):
        return False
    if session.is_whole:
        write_result(session.path(), result)
        table.write()
        telling.say("kept", f"{session.path()}; the table in {table.README} has it")
    return True


if __name__ == "__main__":
    sys.exit(main())
