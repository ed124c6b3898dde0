"""A tool call: to its server and back, and into the store with its trajectory.

Owns: attribution of a tool call (address, key, header; a trace; the model's call of the tool, within the group and the
session that the caller names), what is recorded, and waiting for the commit, at most `recorder.commit_timeout_s`.
Refuses: which server a tool belongs to (`proxy.mcp_gateway.gateway`). Recording never breaks a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from proxy.admission.address import StatedAddress
from proxy.attribution.hints import HintKind, read_hints, read_traceparent
from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import Context, TrajectoryAddress
from proxy.metrics import Metrics
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.capture.recorder import Recorder
from recorder.capture.tool_calls import ToolCall, ToolCallAttribution
from recorder.errors import NotOwner, RecorderError
from recorder.ids import new_id
from recorder.messages.calls import Address
from recorder.messages.plain_text import text_parts
from recorder.states import Confidence, ToolOutcome

log = logging.getLogger(__name__)

UNJOINED = ToolCallAttribution("none", Confidence.NEW)


@dataclass(slots=True)
class RunningToolCall:
    """A tool call while it runs."""

    server: str | None
    name: str  # the callers' name
    tool: str
    arguments: Any
    annotations: Mapping[str, Any] | None
    id: str = field(default_factory=lambda: new_id("tool"))
    started_at: float = field(default_factory=time.time)
    joined: ToolCallAttribution = UNJOINED
    outcome: ToolOutcome = ToolOutcome.ABORTED
    result: Mapping[str, Any] | None = None
    error: str | None = None


class ToolCaller:
    """Calls tools and records the calls. One per gateway."""

    def __init__(self, project_id: str, recorder: Recorder, metrics: Metrics, commit_timeout_s: float) -> None:
        self._project_id = project_id
        self._recorder = recorder
        self._metrics = metrics
        self._commit_timeout_s = commit_timeout_s
        self._late: set[asyncio.Task[None]] = set()  # commits after their caller has gone
        self._unrecorded, self._store_failing = RateLimitedLog(log), RateLimitedLog(log)

    async def call(
        self,
        ctx: Context,
        called: RunningToolCall,
        answer: Callable[[], Awaitable[dict[str, Any]]],
        refused: Callable[[], Awaitable[str | None]],
    ) -> dict[str, Any]:
        """Call a tool, record it, and return its result. Raises MCPError with the server's own refusal.

        A server that is away yields a failed tool result: the model can read it, and its agent continues. A caller that
        names another key's trajectory is refused, and no tool is called. `refused` is called once the trajectory is
        known; if it returns a reason, that yields a failed tool result too.
        """
        called.joined = await self._join(ctx, called)
        if (why := await refused()) is not None:
            called.outcome, called.error = ToolOutcome.ERRORED, why
            await self._end(called)
            return {"content": [{"type": "text", "text": why}], "isError": True}
        try:
            result = await answer()
        except UpstreamDown as e:
            called.outcome, called.error = ToolOutcome.ERRORED, str(e)
            result = {"content": [{"type": "text", "text": str(e)}], "isError": True}
        except MCPError as e:
            called.outcome, called.error = ToolOutcome.ERRORED, f"{e.error.code}: {e.error.message}"
            await self._end(called)
            raise
        except asyncio.CancelledError:
            called.error = "the caller did not wait for the result"
            self._in_background(called)
            raise
        else:
            called.result = result
            called.outcome, called.error = _outcome(result)
        await self._end(called)
        return result

    async def ended(self, addresses: Collection[TrajectoryAddress]) -> Collection[TrajectoryAddress]:
        """Return those of these trajectories that have ended; none if the store cannot answer now."""
        pairs = [(one.group, one.trajectory) for one in addresses]
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                return [
                    TrajectoryAddress(*address) for address in await self._recorder.tools.ended(self._project_id, pairs)
                ]
        except (RecorderError, TimeoutError) as e:
            self._store_failing(
                logging.WARNING, "the store cannot say now which trajectories have ended: %s", e or type(e).__name__
            )
            return ()

    async def close(self) -> None:
        """Wait for pending writes."""
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _join(self, ctx: Context, called: RunningToolCall) -> ToolCallAttribution:
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                return await self._joined(ctx, called)
        except NotOwner as e:
            raise MCPError(INVALID_REQUEST, str(e)) from e
        except Exception as e:  # noqa: BLE001 - a fault in recording must not reach the agent
            self._alarm(called, "attribution", e)
            return UNJOINED

    async def _joined(self, ctx: Context, called: RunningToolCall) -> ToolCallAttribution:
        tools = self._recorder.tools
        scope = ctx.request.scope if ctx.request is not None else {}
        stated: StatedAddress | None = scope.get("hone.stated")
        address = stated.address if stated is not None else Address()
        if stated is not None and stated.source is not None and address.trajectory is not None:
            home = await tools.run_at(self._project_id, address)
            return await tools.join(
                self._project_id, called.name, called.arguments, stated=home, source=stated.source.value
            )
        hints = read_hints(scope.get("hone.headers", {}), "mcp", {}).found
        for hint in (*read_traceparent((ctx.meta or {}).get("traceparent")), *hints):
            if hint.kind not in (HintKind.SPAN, HintKind.TRACE):
                continue
            run = self._recorder.find.run_of_trace(self._project_id, str(hint), address.access)
            if run is not None:
                confidence = Confidence.EXACT if hint.kind is HintKind.SPAN else Confidence.HINT
                return await tools.join(
                    self._project_id,
                    called.name,
                    called.arguments,
                    stated=run,
                    source=hint.source,
                    confidence=confidence,
                )
        sessions = {str(hint): hint.source for hint in hints if hint.kind in (HintKind.SESSION, HintKind.LOOSE)}
        return await tools.join(
            self._project_id,
            called.name,
            called.arguments,
            access=address.access,
            group=address.group,
            sessions=sessions,
        )

    async def _end(self, called: RunningToolCall) -> None:
        """Count and commit; the caller waits for that within the time limit."""
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                await self._commit(called)
        except Exception as e:  # noqa: BLE001 - a fault in recording must not reach the agent
            self._alarm(called, "timeout" if isinstance(e, TimeoutError) else "store", e)

    def _in_background(self, called: RunningToolCall) -> None:
        task = asyncio.ensure_future(self._end(called))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _commit(self, called: RunningToolCall) -> None:
        now = time.time()
        self._metrics.tool_call(called.server or "unknown", called.outcome.value, now - called.started_at)
        await self._recorder.tools.commit(
            ToolCall(
                id=called.id,
                project_id=self._project_id,
                joined=called.joined,
                server=called.server,
                name=called.name,
                tool=called.tool,
                arguments=called.arguments,
                outcome=called.outcome,
                result=called.result,
                error=called.error,
                annotations=called.annotations,
                started_at=called.started_at,
                finished_at=now,
            )
        )

    def _alarm(self, called: RunningToolCall, why: str, error: Exception) -> None:
        self._metrics.unrecorded(f"tool_{why}")
        self._unrecorded(
            logging.ERROR,
            "tool call %s is served and NOT RECORDED in full (%s): %s. See hone_unrecorded_calls in /metrics.",
            called.id,
            why,
            error or type(error).__name__,
        )


def _outcome(result: Mapping[str, Any]) -> tuple[ToolOutcome, str | None]:
    if result.get("resultType") == "input_required":
        return ToolOutcome.INPUT_REQUIRED, None
    if not result.get("isError"):
        return ToolOutcome.COMPLETE, None
    return ToolOutcome.FAILED, next((text[:2000] for text in text_parts(result)), "the tool reported a failure")
