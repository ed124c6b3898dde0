"""The program behind `hone scenarios generate`: its model, its request, and its progress and outcome as text and JSON.

Owns: the model and its key, the cost so far and its limit, finding the server and listing its tools, and the messages.
Refuses: sending, retries, rate limits and hiding keys in messages (`recorder.llm.client`), prompts and generating
(`trainer.scenario_generation.generation`), flags and printing (`trainer.commands`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from judge.panel_settings import BASE
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from proxy.settings.mcp import McpServerSettings
from recorder.errors import ModelFailed
from recorder.llm.client import LlmClient, Messages, ModelEndpoint, ModelReply
from trainer.errors import GeneratorFailed, ToolsUnavailable
from trainer.scenario_generation import tools
from trainer.scenario_generation.generation import (
    GenerationRequest,
    GenerationResult,
    generate_scenarios,
    resume_generation,
)
from trainer.scenario_generation.prompts import difficulty_counts
from trainer.scenario_generation.tools import ServerTool
from trainer.tasks.scenarios import Scenario, scenario_line

TEMPERATURE: Final = 1.0  # tasks should differ; omitted if the provider does not accept it


@dataclass(slots=True)
class WriterCost:
    """The cost of all requests. `usd` None: the price is unknown."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None


class WriterModel:
    """The model that writes scenarios, with a cost limit. One event loop; `close()` at the end."""

    def __init__(self, settings: JudgeSettings, model: str | None = None, max_usd: float | None = None) -> None:
        """Raises `GeneratorFailed` if no model is set."""
        name = model or settings.model
        if not name:
            raise GeneratorFailed(
                "no model is set that could write scenarios: name one with --model (by its LiteLLM name, "
                "`openai/gpt-5-mini`), or set judge.model"
            )
        if name == BASE:
            raise GeneratorFailed(
                f"{BASE!r} is a judge and does not write scenarios: it would write what it is trained on. Name a model "
                "with --model by its LiteLLM name (`openai/gpt-5-mini`)"
            )
        self._model = LlmClient(_reached(name, settings), settings, TEMPERATURE)
        self._max_usd = max_usd
        self.spent = WriterCost()

    @property
    def spent_up(self) -> bool:
        """Whether the cost limit is reached."""
        return self._max_usd is not None and (self.spent.usd or 0.0) >= self._max_usd

    async def ask(self, messages: Messages) -> str:
        """The model's answer; retried after a pause if it is unreachable, overloaded or broken.

        Raises `GeneratorFailed`.
        """
        try:
            reply = await self._model.ask(messages)
        except ModelFailed as e:
            raise GeneratorFailed(f"the model {e}") from None
        finally:
            self.spent.requests = self._model.requests
        self._count(reply)
        return reply.text

    async def close(self) -> None:
        """Close connections, and tasks that LiteLLM left on this loop."""
        await self._model.close()

    def _count(self, reply: ModelReply) -> None:
        self.spent.tokens_in += reply.tokens_in
        self.spent.tokens_out += reply.tokens_out
        if reply.cost_usd is not None:
            self.spent.usd = (self.spent.usd or 0.0) + reply.cost_usd


def _reached(name: str, settings: JudgeSettings) -> ModelEndpoint:
    """The judge's address and key are used for the judge's provider only."""
    if name.partition("/")[0] != settings.model.partition("/")[0]:
        return ModelEndpoint(name)
    return ModelEndpoint(name, settings.api_base, settings.api_key.get_secret_value() if settings.api_key else "")


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
    model = WriterModel(settings.judge, order.model, order.max_usd)
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
    """The message after a signal."""
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
