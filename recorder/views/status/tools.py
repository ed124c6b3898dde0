"""Usage of tools: number of calls, outcomes and latency by tool, and the newest errors.

Owns: these queries, over the newest tool calls only. Refuses: one trajectory's tool calls
(`recorder.views.trajectories.transcripts`), and calling tools (`proxy.mcp_gateway`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.plain_text import message_text
from recorder.states import ToolOutcome
from recorder.stats.means import Latency, latency_quantiles
from recorder.store.database import Project
from recorder.store.schema import tool_calls

MOST_CALLS: Final = 2000  # the newest; the rows have long results between them, so more would be slow
MOST_ERRORS: Final = 20
DETAIL_CHARS: Final = 500
BAD: Final = (ToolOutcome.FAILED, ToolOutcome.ERRORED)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool's newest calls. `server` is None if no configured MCP server has a tool of this name."""

    server: str | None
    tool: str
    calls: int
    outcomes: Mapping[str, int]
    latency: Latency
    last_at: float

    @property
    def bad(self) -> int:
        """The number of calls that failed or got no answer."""
        return sum(self.outcomes.get(outcome, 0) for outcome in BAD)


@dataclass(frozen=True, slots=True)
class ToolError:
    """A failed tool call. `detail`: the beginning of the tool's result or of its server's error."""

    id: str
    server: str | None
    tool: str
    outcome: str
    trajectory_id: str | None
    at: float
    seconds: float
    detail: str


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """Usage by tool. `calls`: how many calls were read; `is_complete`: whether these are all."""

    calls: int
    is_complete: bool
    tools: Sequence[ToolUse]
    errors: Sequence[ToolError]


async def load_tool_usage(project: Project) -> ToolUsage:
    """Return the usage of tools over the newest calls."""
    c = tool_calls.c
    columns = (c.id, c.server, c.tool, c.outcome, c.started_at, c.finished_at)
    query = select(*columns).where(c.project_id == project.id).order_by(c.started_at.desc()).limit(MOST_CALLS)
    async with project.store.read() as conn:
        rows = list(await conn.execute(query))
        wrong = [row.id for row in rows if row.outcome in BAD][:MOST_ERRORS]
        errors = await _errors(conn, wrong)
    return ToolUsage(len(rows), len(rows) < MOST_CALLS, _by_tool(rows), errors)


def _by_tool(rows: Sequence[Any]) -> list[ToolUse]:
    by_tool: dict[tuple[str | None, str], list[Any]] = defaultdict(list)
    for row in rows:
        by_tool[row.server, row.tool].append(row)
    return [_use(*key, of) for key, of in sorted(by_tool.items(), key=lambda one: (one[0][0] or "", one[0][1]))]


def _use(server: str | None, tool: str, of: Sequence[Any]) -> ToolUse:
    outcomes = Counter(str(row.outcome) for row in of)
    took = latency_quantiles([row.finished_at - row.started_at for row in of])
    return ToolUse(server, tool, len(of), outcomes, took, of[0].started_at)


async def _errors(conn: AsyncConnection, ids: Sequence[str]) -> list[ToolError]:
    query = select(tool_calls).where(tool_calls.c.id.in_(ids)).order_by(tool_calls.c.started_at.desc())
    return [_error(row) for row in await conn.execute(query)]


def _error(row: Any) -> ToolError:
    detail = (row.error or _result_text(row.result))[:DETAIL_CHARS]
    seconds = row.finished_at - row.started_at
    return ToolError(row.id, row.server, row.tool, row.outcome, row.trajectory_id, row.started_at, seconds, detail)


def _result_text(result: object) -> str:
    """Return the text of a server's result, which may be any JSON value; empty if it has none."""
    return message_text(result) if isinstance(result, dict) and isinstance(result.get("content"), list) else ""
