"""`hone demo`: record, judge and train an agent with tools on this machine, in two to four minutes.

    python -m examples.helpdesk.demo [--data FOLDER] [--seed N] [--keep]

Owns the sequence: the demo's servers, `hone up`, `hone train`, and the summary at the end. Engine, proxy, judge and
trainer are the real programs, started as a user would start them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from examples.helpdesk.ending import Ending, read_ending, show, write_summary
from examples.helpdesk.orders import DEMO_SEED
from examples.helpdesk.scenarios import DemoFiles
from examples.helpdesk.surroundings import surroundings
from examples.running.programs import hone_program, hone_up, new_run, run_to_its_end
from proxy.settings.loader import load_settings

CONFIG = Path(__file__).parent / "hone.toml"
RUNS = Path(".hone") / "demo"


def main() -> None:
    """Run the demo to its end."""
    parser = argparse.ArgumentParser(description="Hone's demo: a helpdesk agent learns to use its tools.")
    parser.add_argument("--data", type=Path, help=f"data folder (default: a new folder in {RUNS})")
    parser.add_argument(
        "--seed",
        type=int,
        default=DEMO_SEED,
        help="seed of the orders: another one gives another split, other parcels and days",
    )
    parser.add_argument("--keep", action="store_true", help="at the end, keep serving, with the pages, until Ctrl-C")
    arguments = parser.parse_args()
    data = arguments.data or new_run(RUNS)
    console = Console(highlight=False)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    try:
        sys.exit(run(data.resolve(), arguments.seed, console, keep=arguments.keep))
    except KeyboardInterrupt:
        console.print(f"\nStopped. The recorded data is in {data}.")
        sys.exit(130)


def run(data: Path, seed: int, console: Console, *, keep: bool = False) -> int:
    """Start the demo's servers and `hone up`, then `hone train`; return its exit status.

    `keep`: what runs stays until Ctrl-C, with a learner for further traffic.
    """
    started = time.monotonic()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with surroundings(data, seed, console) as (files, environment):
        options = ["--config", str(CONFIG), "--data", str(data)]
        with hone_up(["--no-learn", *options], environment, data, console) as up:
            trained = run_to_its_end([sys.executable, "-m", "proxy.cli", "train", *options], environment)
            if trained == 0:
                conclude(data, files, time.monotonic() - started, console)
                if keep:
                    with hone_program(["learn", *options], environment, data / "logs" / "learn.log"):
                        stay(up, data, f"http://127.0.0.1:{environment['HONE_PROXY__PORT']}/hone/", console)
    return trained


def stay(up: subprocess.Popen[str], data: Path, page: str, console: Console) -> None:
    """Wait until `hone up` ends, or until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        console.print(f"Hone keeps serving until Ctrl-C: [bold]{page}[/bold]")
        status = up.wait()
        console.print(f"`hone up` ended with status {status}. Its log: {data / 'logs' / 'up.log'}")
        return
    console.print("Stopping.")


def conclude(data: Path, files: DemoFiles, seconds: float, console: Console) -> None:
    """Write summary.json and print the result."""
    ending: Ending = asyncio.run(read_ending(data, load_settings(CONFIG, {}).settings.recorder, seconds))
    summary = write_summary(ending, data)
    show(ending, data, summary, files, console)


if __name__ == "__main__":
    main()
