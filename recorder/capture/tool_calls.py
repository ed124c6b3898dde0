"""Tool calls through the gateway: find the model call that requested each, and record them.

Owns: the choice among pending requests (`choose_request`), and the trajectory of a call whose caller named one.
Refuses: MCP, and guessing: if several trajectories wait for the same tool call, it is assigned to none of them until a
model call brings its result back (`recorder.capture.lookups.waiting_tool_calls`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from recorder.capture import rows
from recorder.capture.cache import CaptureCache
from recorder.capture.lookups.statements import AT_ADDRESSES, TOOL_REQUESTS
from recorder.capture.lookups.waiting_tool_calls import tool_call_evidence
from recorder.capture.trajectories import ExistingTrajectory, RequestedTrajectory, require_owner
from recorder.capture.writer import ToolJob, TrajectoryJob, Writer
from recorder.ids import first_id_at, new_id
from recorder.messages.calls import ANYBODY, Address, KeyAccess, TrajectoryRef
from recorder.messages.plain_text import match_key
from recorder.messages.redaction import Redactor
from recorder.states import Confidence, ToolOutcome, TrajectoryState
from recorder.store.write_backends import Executor, WriteBackend

WINDOW_S: Final = 900.0  # how long a model's request waits for its call: the default idle time of a trajectory
ROW_BYTES: Final = 1024
_NO_SESSIONS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A model's request for a tool: one tool call in one sampled message."""

    call_id: str
    choice: int
    position: int
    tool_call_id: str | None
    trajectory_id: str


@dataclass(frozen=True, slots=True)
class ToolCallAttribution:
    """The trajectory and the request of a tool call, and the evidence."""

    source: str  # path, key, header, traceparent, trace, session_header, arguments, none
    confidence: Confidence
    trajectory_id: str | None = None
    asked: ToolRequest | None = None
    # set if other requests may be the one that it answers: the hash that they share, and the calls that made them
    match: bytes | None = None
    calls: tuple[str, ...] = ()
    key: str = ""  # the caller's key family


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One ended tool call: everything that the recorder writes about it."""

    id: str
    project_id: str
    joined: ToolCallAttribution
    server: str | None
    name: str  # the name that the agent used
    tool: str  # the name on its server
    arguments: Mapping[str, Any]
    outcome: ToolOutcome
    result: Mapping[str, Any] | None
    error: str | None
    annotations: Mapping[str, Any] | None
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A pending request, with what tells it from equal ones."""

    asked: ToolRequest
    group: str  # the group part of its trajectory's address
    session: str | None
    equal: int  # equal requests of its call


def choose_request(waiting: Sequence[ToolRequest]) -> tuple[Confidence, ToolRequest | None]:
    """Return which of the equal pending requests a call answers: the first, or None if several trajectories wait."""
    if not waiting:
        return Confidence.NEW, None
    if len({asked.trajectory_id for asked in waiting}) > 1:
        return Confidence.AMBIGUOUS, None
    return Confidence.EXACT, min(waiting, key=lambda a: (a.call_id, a.choice, a.position))


class ToolCalls:
    """The recorder's part of the gateway. One per recorder."""

    def __init__(
        self,
        backend: WriteBackend,
        writer: Writer,
        memory: CaptureCache,
        key_of: Callable[[str], Awaitable[bytes]],
        redaction: Redactor,
    ) -> None:
        self._backend = backend
        self._writer = writer
        self._memory = memory
        self._key_of = key_of
        self._redaction = redaction

    async def join(
        self,
        project_id: str,
        name: str,
        arguments: Any,
        *,
        stated: str | None = None,
        source: str = "none",
        confidence: Confidence = Confidence.STATED,
        access: KeyAccess = ANYBODY,
        group: str | None = None,
        sessions: Mapping[str, str] = _NO_SESSIONS,
    ) -> ToolCallAttribution:
        """Find the request that a call answers: in the trajectory `stated` (an id), else in the caller's trajectories.

        Without `stated`, only a certain match counts: in the trajectories of the address's `group` if it is given, and
        of a session that the caller names (`sessions`: name → source) if one of its requests is pending. The request is
        reserved: no other call of this process gets it, unless `release` returns it.
        """
        wanted, pending = await self._pending(project_id, name, arguments, stated, access)
        if group is not None and stated is None:
            pending = [one for one in pending if one.group == group]
        named = [one for one in pending if one.session in sessions] if stated is None else []
        waiting = [one.asked for one in named or pending]
        found, asked = choose_request(waiting)
        sure = len(waiting) == 1 and (named or pending)[0].equal == 1
        later: dict[str, Any] = {} if sure or not waiting else _later(wanted, waiting, access)
        if asked is not None:
            self._memory.tools.put((asked.call_id, asked.choice, asked.position), True)
        if stated is not None:
            return ToolCallAttribution(source, confidence, stated, asked, **later)
        if not waiting:
            return ToolCallAttribution("none", Confidence.NEW)
        by = sessions[named[0].session or ""] if named and len(named) < len(pending) else "arguments"
        return ToolCallAttribution(by, found, asked.trajectory_id if asked is not None else None, asked, **later)

    def release(self, joined: ToolCallAttribution) -> None:
        """Return the request, because the call did not answer it: the same call will be repeated."""
        if joined.asked is not None:
            self._memory.tools.drop((joined.asked.call_id, joined.asked.choice, joined.asked.position))

    async def run_at(self, project_id: str, address: Address) -> str:
        """Return the id of the newest trajectory at an address, ended or not; without one, open one.

        Raises NotOwner if it belongs to another key.
        """
        assert address.trajectory is not None
        known = self._memory.addresses.get((project_id, address.group or "", address.trajectory))
        if known is not None:
            return require_owner(known, address).id
        place = _place(project_id, address)
        found = await self._backend.read(lambda ex: _newest(ex, place))
        if found is not None:
            return require_owner(_ref(found), address).id
        done: asyncio.Future[TrajectoryRef] = asyncio.get_running_loop().create_future()
        # Not cached, because its first model call sets its alias, version and group.
        self._writer.submit(TrajectoryJob(place, done, remembered=False))
        return require_owner(await done, address).id

    async def ended(self, project_id: str, addresses: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of these addresses (group or "", trajectory) whose newest trajectory has ended."""
        groups, ids = {group for group, _ in addresses}, {trajectory for _, trajectory in addresses}
        values = {"project": project_id, "groups": sorted(groups), "ids": sorted(ids)}
        found = await self._backend.read(lambda ex: ex.all(AT_ADDRESSES, **values))
        states = {(row[2], row[3]): row[5] for row in sorted(found, key=lambda row: row[4])}  # by sequence
        return {a for a in addresses if states.get(a, TrajectoryState.OPEN) != TrajectoryState.OPEN}

    async def commit(self, call: ToolCall) -> None:
        """Write a tool call. Returns when it is durable; raises StoreUnavailable if it is not."""
        if call.outcome is ToolOutcome.INPUT_REQUIRED:
            self.release(call.joined)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        row = _row(await self._redacted(call))
        self._writer.submit(ToolJob(row, call.joined.trajectory_id, done, ROW_BYTES + _size(row)))
        await done

    async def _redacted(self, call: ToolCall) -> ToolCall:
        if not self._redaction:
            return call
        seen = self._redaction
        return replace(
            call,
            arguments=await seen.redact_value(call.arguments),
            result=await seen.redact_value(call.result) if call.result is not None else None,
            error=await seen.redact_value(call.error) if call.error is not None else None,
        )

    async def _pending(
        self, project_id: str, name: str, arguments: Any, home: str | None, access: KeyAccess
    ) -> tuple[bytes, list[_PendingRequest]]:
        """Return the hash of a call's name and arguments, and the pending requests that share it."""
        # stored requests are redacted, so the call's arguments are redacted before the search
        wanted = match_key(await self._key_of(project_id), name, await self._redaction.redact_value(arguments))
        since = first_id_at("call", time.time() - WINDOW_S)
        found = await self._backend.read(
            lambda ex: ex.all(TOOL_REQUESTS, match=wanted, since=since, access=access.key if home is None else "")
        )
        pending = [_PendingRequest(ToolRequest(*row[:5]), *row[5:]) for row in found if row[4] == home or home is None]
        answered = self._memory.tools
        return wanted, [
            one for one in pending if (one.asked.call_id, one.asked.choice, one.asked.position) not in answered
        ]


def _later(match: bytes, waiting: Sequence[ToolRequest], access: KeyAccess) -> dict[str, Any]:
    return {"match": match, "calls": tuple({asked.call_id: None for asked in waiting}), "key": access.key}


def _newest(ex: Executor, place: RequestedTrajectory) -> ExistingTrajectory | None:
    values = {"project": place.project_id, "groups": [place.address_group], "ids": [place.external_id]}
    return max(
        map(ExistingTrajectory._make, ex.all(AT_ADDRESSES, **values)), key=lambda row: row.sequence, default=None
    )


def _ref(row: ExistingTrajectory) -> TrajectoryRef:
    return TrajectoryRef(row.id, row.group_id, row.external_id, row.address_group or None, made_by=row.made_by)


def _place(project_id: str, address: Address) -> RequestedTrajectory:
    return RequestedTrajectory(
        trajectory_id=new_id("traj"),
        project_id=project_id,
        alias_id=None,
        address_group=address.group or "",
        external_id=address.trajectory,
        implicit_key=None,
        group_size=address.group_size,
        purpose=address.purpose.value,
        origin=address.origin.value,
        tags=rows.json_text(dict(address.tags)),
        offered_version=None,
        started_at=0.0,  # the store's clock
        access=address.access,
        made_by=address.access.key,
        groups_of=address.access.groups_of,
    )


def _row(call: ToolCall) -> tuple[Any, ...]:
    asked = call.joined.asked
    result = rows.json_text(call.result) if call.result is not None else None
    match = call.joined.match if call.outcome is not ToolOutcome.INPUT_REQUIRED else None
    return (
        call.id,
        call.project_id,
        call.joined.trajectory_id,
        asked.call_id if asked else None,
        asked.choice if asked else None,
        asked.position if asked else None,
        asked.tool_call_id if asked else None,
        call.joined.source,
        call.joined.confidence.value,
        call.server,
        call.name,
        call.tool,
        rows.json_text(call.arguments),
        call.outcome.value,
        result,
        call.error,
        rows.json_text(call.annotations) if call.annotations is not None else None,
        call.started_at,
        call.finished_at,
        match,
        rows.json_text(
            tool_call_evidence(call.joined.calls, call.joined.key, call.result, call.error, len(result or ""))
        )
        if match is not None
        else None,
    )


def _size(row: Sequence[Any]) -> int:
    return sum(len(value) for value in row if isinstance(value, str))
