"""`make demo`: an agent with tools is recorded, judged, trained and served again, on this machine, in two minutes.

    python -m examples.helpdesk.demo [--data FOLDER] [--seed N]

Owns the order of things: orders and tools, a judge, `hone train`, and the ending. Refuses to do Hone's work: engine,
proxy, judge and trainer are the real programs, as anybody would start them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from examples.helpdesk.ending import Ending, read_ending, show, write_summary
from examples.helpdesk.orders import DEMO_SEED
from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.scripted_judge import NAME as SCRIPTED_JUDGE

CONFIG = Path(__file__).parent / "hone.toml"
ROOT = Path(__file__).parent.parent.parent
RUNS = Path(".hone") / "demo"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


def main() -> None:
    """Run the demo to its end."""
    parser = argparse.ArgumentParser(description="Hone's demo: a helpdesk agent learns to use its tools.")
    parser.add_argument("--data", type=Path, help=f"where everything is kept (a new folder in {RUNS})")
    parser.add_argument("--seed", type=int, default=DEMO_SEED, help="other orders: another split, parcels and days")
    arguments = parser.parse_args()
    data = arguments.data or new_run(RUNS)
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended too
    try:
        sys.exit(run(data.resolve(), arguments.seed, console))
    except KeyboardInterrupt:
        console.print(f"\nStopped. What was recorded so far lies in {data}.")
        sys.exit(130)


def new_run(runs: Path) -> Path:
    """The first folder `runs/1`, `runs/2` … that is not there yet: one run's data never mixes with another's."""
    number = 1
    while (runs / str(number)).exists():
        number += 1
    return runs / str(number)


def run(data: Path, seed: int, console: Console) -> int:
    """Start what Hone does not (tools, and a judge where there is none), then `hone train`; returns its exit status."""
    started = time.monotonic()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = write_demo(data / "helpdesk", seed)
    with contextlib.ExitStack() as programs:
        tools_port, proxy_port, engine_port = free_ports(3)
        environment = os.environ | {
            "HELPDESK_MCP_URL": f"http://127.0.0.1:{tools_port}/mcp",
            "HONE_PROXY__PORT": str(proxy_port),
            "HONE_ENGINE__PORT": str(engine_port),
            "HONE_CAMPAIGN__SCENARIOS": str(files.scenarios),
            "HONE_CAMPAIGN__VAL_SCENARIOS": str(files.heldout),
        }
        tools = ["-m", "examples.helpdesk.tools_server", "--database", str(files.database), "--port", str(tools_port)]
        programs.enter_context(program(tools, tools_port, data))
        environment |= programs.enter_context(the_judge(data, console))
        trained = subprocess.run(
            [sys.executable, "-m", "proxy.cli", "train", "--config", str(CONFIG), "--data", str(data)],
            env=environment,
            cwd=ROOT,
            check=False,
        )
    if trained.returncode == 0:
        conclude(data, files, time.monotonic() - started, console)
    return trained.returncode


def conclude(data: Path, files: DemoFiles, seconds: float, console: Console) -> None:
    """Write summary.json and show what came of it."""
    ending: Ending = asyncio.run(read_ending(data, seconds))
    summary = write_summary(ending, data)
    show(ending, data, summary, files, console)


@contextlib.contextmanager
def the_judge(data: Path, console: Console) -> Iterator[dict[str, str]]:
    """The settings of the judge: the model that HONE_JUDGE__MODEL names, else a scripted stand-in started here."""
    if model := os.environ.get("HONE_JUDGE__MODEL"):
        console.print(f"Judge: {model}")
        yield {}
        return
    [port] = free_ports(1)
    console.print(
        "Judge: [bold]a scripted stand-in[/bold], which ranks by written rules (examples/helpdesk/scripted_judge.py). "
        "For a real one, set HONE_JUDGE__MODEL to a LiteLLM name, and its key."
    )
    with program(["-m", "examples.helpdesk.scripted_judge", "--port", str(port)], port, data):
        yield {
            "HONE_JUDGE__MODEL": f"openai/{SCRIPTED_JUDGE}",
            "HONE_JUDGE__API_BASE": f"http://127.0.0.1:{port}/v1",
            "HONE_JUDGE__API_KEY": "none-needed",
        }


@contextlib.contextmanager
def program(arguments: list[str], port: int, data: Path) -> Iterator[None]:
    """A Python program for as long as the block lasts; returns once it listens. Its output goes to a log file.

    Raises:
        RuntimeError: it ended, or did not listen in time.
    """
    name = arguments[1].rpartition(".")[2]
    log = data / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out, cwd=ROOT)
        try:
            wait_until_listening(process, port, f"{name} (its log is {log})")
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int, what: str) -> None:
    """Return when the process accepts connections on the loopback port."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} did not start to listen on port {port}")


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now, all different."""
    with contextlib.ExitStack() as sockets:
        taken = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


if __name__ == "__main__":
    main()
