"""What surrounds Hone in a run: an MCP server where no URL is given, and the stand-ins where no model is named.

Owns: starting them as real programs, and the settings by which Hone finds them. Refuses: Hone itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.helpdesk.scripted_judge import NAME as JUDGE
from examples.mcp_rl.stand_ins import GENERATOR
from examples.mcp_rl.warehouse import Item, warehouse, write_database
from examples.running.programs import free_ports, program


@dataclass(frozen=True, slots=True)
class World:
    """A server's URL and what names it and the models to Hone.

    `database` and `items`: of the committed server; of another nobody knows what is right.
    """

    url: str
    generator: Sequence[str]  # flags of `hone scenarios generate`
    environment: Mapping[str, str]
    database: Path | None = None
    items: Sequence[Item] = field(default=())


@contextlib.contextmanager
def world(data: Path, seed: int, url: str | None) -> Iterator[World]:
    """All of it for as long as the block lasts. `url`: of an MCP server that runs already."""
    with contextlib.ExitStack() as programs:
        judge_port, tools_port = free_ports(2)
        generator: list[str] = []
        environment: dict[str, str] = {}
        if "HONE_JUDGE__MODEL" not in os.environ:
            stand_ins = ["-m", "examples.mcp_rl.stand_ins", "--port", str(judge_port), "--seed", str(seed)]
            programs.enter_context(program(stand_ins, judge_port, data))
            generator, environment = ["--model", f"openai/{GENERATOR}"], _scripted(judge_port)
        if url is not None:
            yield World(url, generator, environment | _server(url))
            return
        database, items = data / "warehouse.sqlite", warehouse(seed)
        write_database(database, items)
        tools = ["-m", "examples.mcp_rl.tools_server", "--database", str(database), "--port", str(tools_port)]
        programs.enter_context(program(tools, tools_port, data))
        own = f"http://127.0.0.1:{tools_port}/mcp"
        yield World(own, generator, environment | _server(own), database, items)


def _server(url: str) -> dict[str, str]:
    return {"HONE_MCP__SERVER__URL": url}


def _scripted(port: int) -> dict[str, str]:
    return {
        "HONE_JUDGE__MODEL": f"openai/{JUDGE}",
        "HONE_JUDGE__API_BASE": f"http://127.0.0.1:{port}/v1",
        "HONE_JUDGE__API_KEY": "none-needed",
    }
