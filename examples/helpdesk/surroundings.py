"""What surrounds Hone in the demo, as real programs: the orders and their tools, and a judge where none is named.

Owns: starting them, ending them, and the settings by which Hone finds them. Refuses: Hone itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from examples.helpdesk.orders import DEMO_SEED
from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.scripted_judge import NAME as SCRIPTED_JUDGE

ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

# Where a run's data lies and where to say something → a judge's settings, for as long as it is there.
Judge = Callable[[Path, Console], contextlib.AbstractContextManager[dict[str, str]]]


@contextlib.contextmanager
def surroundings(
    data: Path, seed: int = DEMO_SEED, console: Console | None = None, judge: Judge | None = None
) -> Iterator[tuple[DemoFiles, dict[str, str]]]:
    """Orders, tools and a judge for as long as the block lasts: their files, and the variables that name them to Hone.

    Free ports for Hone's own engine and proxy are among the variables. `judge` is one in place of `the_judge`.
    """
    console = console or Console(quiet=True)
    with contextlib.ExitStack() as programs:
        tools_port, proxy_port, engine_port = free_ports(3)
        console.print(f"Pages: http://127.0.0.1:{proxy_port}/hone/ (as soon as the proxy runs)")
        files = write_demo(data / "helpdesk", seed)
        tools = ["-m", "examples.helpdesk.tools_server", "--database", str(files.database), "--port", str(tools_port)]
        programs.enter_context(program(tools, tools_port, data))
        judging = programs.enter_context((judge or the_judge)(data, console))
        yield (
            files,
            {
                "HELPDESK_MCP_URL": f"http://127.0.0.1:{tools_port}/mcp",
                "HONE_PROXY__PORT": str(proxy_port),
                "HONE_ENGINE__PORT": str(engine_port),
                "HONE_CAMPAIGN__SCENARIOS": str(files.scenarios),
                "HONE_CAMPAIGN__VAL_SCENARIOS": str(files.heldout),
                **judging,
            },
        )


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
        yield scripted(port)


def scripted(port: int) -> dict[str, str]:
    """The settings of a scripted judge on a loopback port."""
    return {
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
