"""The program behind `hone scenarios generate`: its request, its progress and its outcome as text and JSON.

Owns: finding the server and listing its tools, the model's life, and the messages. Refuses: generating
(`trainer.scenario_generation.generation`), flags and printing (`trainer.commands`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proxy.settings.hone import HoneSettings
from proxy.settings.mcp import McpServerSettings
from trainer.errors import ToolsUnavailable
from trainer.scenario_generation import tools, writer_model
from trainer.scenario_generation.difficulties import difficulty_counts
from trainer.scenario_generation.generation import (
    GenerationRequest,
    GenerationResult,
    generate_scenarios,
    resume_generation,
)
from trainer.scenario_generation.tools import ServerTool
from trainer.scenario_generation.writer_model import WriterCost
from trainer.tasks.scenarios import Scenario, scenario_line


@dataclass(frozen=True, slots=True)
class GenerationOrder:
    """The request. `mcp`: a URL, or a name in the settings."""

    number: int
    mcp: str | None = None
    task: str | None = None
    model: str | None = None
    allow_writes: bool = False
    seed: int = 0
    max_usd: float | None = None
    adversarial: float = 0.0  # share


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """The outcome of an order. `stopped`: by a signal, before it was complete."""

    found: GenerationResult
    wanted: GenerationRequest
    spent: WriterCost
    stopped: bool = False


async def generate_order(
    order: GenerationOrder,
    settings: HoneSettings,
    begun: Iterable[Scenario],
    tell: Callable[[GenerationResult, GenerationRequest], None],
) -> GenerationOutcome:
    """The scenarios of an order; `begun`: those of an earlier run, which are included.

    Cancellation while generating is an outcome. Raises `GeneratorFailed`, `ToolsUnavailable`.
    """
    model = writer_model.WriterModel(settings.judge, order.model, order.max_usd)
    listed = [] if order.mcp is None else await tools.list_tools(*_address(order.mcp, settings.mcp))
    shown = tools.filter_offered(listed, allow_writes=order.allow_writes) if order.mcp is not None else []
    wanted = GenerationRequest(
        difficulty_counts(order.number, order.adversarial), shown, order.task, _absent(listed, shown), order.seed
    )
    found, stopped = resume_generation(begun), False
    try:
        await generate_scenarios(wanted, model, lambda so_far: tell(so_far, wanted), found)
    except asyncio.CancelledError:
        stopped = True
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    finally:
        await model.close()
    return GenerationOutcome(found, wanted, model.spent, stopped)


def _absent(listed: list[ServerTool], shown: list[ServerTool]) -> list[str]:
    names = {tool.name for tool in shown}
    return [tool.name for tool in listed if tool.name not in names]


def _address(mcp: str, servers: Mapping[str, McpServerSettings]) -> tuple[str, dict[str, str]]:
    """A server's URL, and the headers for it if it is in the settings. Raises `ToolsUnavailable`."""
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


def progress_line(found: GenerationResult, wanted: GenerationRequest) -> str:
    """One line of progress."""
    dropped = f", {found.dropped.total()} dropped" if found.dropped else ""
    return f"{len(found.scenarios)} of {wanted.total} scenarios{dropped}"


def stopped_text(found: GenerationResult, wanted: GenerationRequest, out: Path | None) -> str:
    """What is there after a signal."""
    there = f"{len(found.scenarios)} of {wanted.total} scenarios"
    if out is None or not found.scenarios:
        return f"stopped: {there} were made"
    return f"stopped: {there} are in {out}; the same command continues from here"


def generation_summary(found: GenerationResult, wanted: GenerationRequest, spent: WriterCost) -> Iterator[str]:
    """The result, line by line."""
    yield f"{progress_line(found, wanted)}: {_counted(found.of_kind)}"
    if found.dropped:
        yield f"dropped: {_counted(found.dropped)}"
    if wanted.absent:
        yield f"not marked read-only, so excluded (--allow-writes): {', '.join(wanted.absent)}"
    if found.missing:
        yield f"missing: {_counted(found.missing)}"
    yield from found.notes
    usd = "" if spent.usd is None else f", ${spent.usd:,.4f}"
    yield f"{spent.requests} requests, {spent.tokens_in:,} tokens in, {spent.tokens_out:,} out{usd}"


def generation_json(
    found: GenerationResult, wanted: GenerationRequest, spent: WriterCost, written: Path | None, *, stopped: bool
) -> dict[str, Any]:
    """The result for scripts, with the scenarios."""
    return {
        "scenarios": [json.loads(scenario_line(one)) for one in found.scenarios],
        "wanted": wanted.total,
        "of_kind": _plain(found.of_kind),
        "dropped": _plain(found.dropped),
        "missing": _plain(found.missing),
        "tools_left_out": list(wanted.absent),
        "notes": list(found.notes),
        "spent": asdict(spent),
        "stopped": stopped,
        "written": str(written) if written is not None else None,
    }


def _plain(counted: Mapping[Any, int]) -> dict[str, int]:
    return {str(name): count for name, count in counted.items()}


def _counted(counted: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items())
