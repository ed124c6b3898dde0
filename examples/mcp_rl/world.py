"""The programs around Hone: an MCP server if no URL is given, and the stand-ins if no model is configured.

Owns: starting them as real programs, and the settings that name them to Hone. Refuses: Hone itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.helpdesk.scripted_judge import NAME as JUDGE
from examples.mcp_rl.stand_ins import GENERATOR
from examples.mcp_rl.warehouse import Item, warehouse, write_database
from examples.running.judges import judging
from examples.running.programs import free_ports, program


@dataclass(frozen=True, slots=True)
class World:
    """A server's URL, and the variables that name it and the models to Hone.

    `database`: of the committed server. `items`: its items, if the scripted generator writes the tasks. For other
    servers or wordings, the right answers are unknown.
    """

    url: str
    generator: Sequence[str]  # flags of `hone scenarios generate`
    environment: Mapping[str, str]
    database: Path | None = None
    items: Sequence[Item] = field(default=())


@contextlib.contextmanager
def world(data: Path, seed: int, url: str | None, config: Path) -> Iterator[World]:
    """Run all of it until the block ends. `url`: of an MCP server that runs already.

    Raises:
        CampaignFailed: the settings file cannot be read.
    """
    with contextlib.ExitStack() as programs:
        stand_ins = judging(config, data, "examples.mcp_rl.stand_ins", JUDGE, "--seed", str(seed))
        environment = programs.enter_context(stand_ins)
        generator = ["--model", f"openai/{GENERATOR}"] if environment else []
        if url is not None:
            yield World(url, generator, environment | _server(url))
            return
        [tools_port] = free_ports(1)
        database, items = data / "warehouse.sqlite", warehouse(seed)
        write_database(database, items)
        tools = ["-m", "examples.mcp_rl.tools_server", "--database", str(database), "--port", str(tools_port)]
        programs.enter_context(program(tools, tools_port, data))
        own = f"http://127.0.0.1:{tools_port}/mcp"
        yield World(own, generator, environment | _server(own), database, items if generator else ())


def _server(url: str) -> dict[str, str]:
    return {"HONE_MCP__SERVER__URL": url}
