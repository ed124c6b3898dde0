"""`hone scenarios generate`: what is wanted, of whom, and what came of it.

Owns: finding the server and listing its tools, the model's life. Refuses: writing scenarios (`trainer.generating`),
flags and printing (`trainer.commands`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from proxy.settings.hone import HoneSettings
from proxy.settings.mcp import McpServerSettings
from trainer.errors import ToolsUnavailable
from trainer.generating import asking, tools
from trainer.generating.asking import Spent
from trainer.generating.difficulties import counts
from trainer.generating.generate import Generated, Wanted, begin, generate
from trainer.generating.tools import Tool
from trainer.tasks.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted. `mcp`: a URL, or a name of the settings."""

    number: int
    mcp: str | None = None
    task: str | None = None
    model: str | None = None
    allow_writes: bool = False
    seed: int = 0
    max_usd: float | None = None
    adversarial: float = 0.0  # share


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order. `stopped`: by a signal, before all of it was there."""

    found: Generated
    wanted: Wanted
    spent: Spent
    stopped: bool = False


async def generated(
    order: Order, settings: HoneSettings, begun: Iterable[Scenario], tell: Callable[[Generated, Wanted], None]
) -> Outcome:
    """The scenarios of an order; `begun`: those that an earlier run made of it, which are among them.

    Being cancelled while they are made is an outcome. Raises `GeneratorFailed`, `ToolsUnavailable`.
    """
    model = asking.Generator(settings.judge, order.model, order.max_usd)
    listed = [] if order.mcp is None else await tools.list_tools(*_address(order.mcp, settings.mcp))
    shown = tools.offered(listed, allow_writes=order.allow_writes) if order.mcp is not None else []
    wanted = Wanted(counts(order.number, order.adversarial), shown, order.task, _absent(listed, shown), order.seed)
    found, stopped = begin(begun), False
    try:
        await generate(wanted, model, lambda so_far: tell(so_far, wanted), found)
    except asyncio.CancelledError:
        stopped = True
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    finally:
        await model.close()
    return Outcome(found, wanted, model.spent, stopped)


def _absent(listed: list[Tool], shown: list[Tool]) -> list[str]:
    names = {tool.name for tool in shown}
    return [tool.name for tool in listed if tool.name not in names]


def _address(mcp: str, servers: Mapping[str, McpServerSettings]) -> tuple[str, dict[str, str]]:
    """A server's URL, and what it is sent where it is one of the settings. Raises `ToolsUnavailable`."""
    if mcp.startswith(("http://", "https://")):
        return mcp, {}
    server = servers.get(mcp)
    if server is None:
        known = f"; [mcp] has: {', '.join(servers)}" if servers else ""
        raise ToolsUnavailable(f"{mcp!r} is neither a URL (http://host:port/mcp) nor a server of [mcp]{known}")
    if server.url is None:
        raise ToolsUnavailable(
            f"the MCP server {mcp!r} is a command, which Hone's gateway starts: run `hone serve` and give "
            "--mcp the gateway's URL, http://127.0.0.1:8700/mcp"
        )
    headers = {name: value.get_secret_value() for name, value in server.headers.items()}
    bearer = {"authorization": f"Bearer {server.token.get_secret_value()}"} if server.token is not None else {}
    return server.url, headers | bearer
