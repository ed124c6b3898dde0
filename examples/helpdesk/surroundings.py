"""The demo's programs around Hone: the tool server, and a scripted judge if no judge is configured.

Owns: starting and stopping them, and the settings that name them to Hone. Refuses: Hone itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from examples.helpdesk.orders import DEMO_SEED
from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.scripted_judge import NAME as SCRIPTED_JUDGE
from examples.running.programs import free_ports, program

# From a data folder and a console to a judge's settings, while the judge runs.
Judge = Callable[[Path, Console], contextlib.AbstractContextManager[dict[str, str]]]


@contextlib.contextmanager
def surroundings(
    data: Path, seed: int = DEMO_SEED, console: Console | None = None, judge: Judge | None = None
) -> Iterator[tuple[DemoFiles, dict[str, str]]]:
    """Run orders, tools and a judge until the block ends; yield their files and the variables that name them to Hone.

    The variables include free ports for Hone's engine and proxy. `judge` replaces `the_judge`.
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
    """Yield the judge's settings: the model of HONE_JUDGE__MODEL, else a scripted stand-in that runs meanwhile."""
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
    """Yield the settings of a scripted judge on a loopback port."""
    return {
        "HONE_JUDGE__MODEL": f"openai/{SCRIPTED_JUDGE}",
        "HONE_JUDGE__API_BASE": f"http://127.0.0.1:{port}/v1",
        "HONE_JUDGE__API_KEY": "none-needed",
    }
