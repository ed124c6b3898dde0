"""The recorder as the proxy process uses it: attribution look-ups, and turns committed in groups.

Owns: the life of the writer and what surrounds it, and the answers to "whose call is this?". Refuses: wire formats,
routing, and deciding what to do when a commit fails: the caller does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recorder import batch as batches
from recorder import canonical, lineage, lookup, rows
from recorder import statements as sql
from recorder.checkpoint import Checkpointer
from recorder.errors import NotFound, RecorderError, StoreUnavailable
from recorder.ids import new_id
from recorder.lanes import Lane, lane_for
from recorder.memory import Earlier, Fresh, Memory
from recorder.placing import Place
from recorder.remember import remember_attempt, remember_ref
from recorder.running import Running
from recorder.settings import RecorderSettings
from recorder.states import Confidence, Purpose, TrajectoryState
from recorder.store import Store
from recorder.tool_calls import ToolCalls
from recorder.turns import Address, Message, Parent, Request, TrajectoryRef, Turn
from recorder.writer import CloseJob, PlaceJob, TurnJob, Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Which run a conversation belongs to, by what it holds. `confidence` is NEW where `source` is "none"."""

    source: str  # "tool_call_id", "lineage", "retry", "none"
    confidence: Confidence
    parent: Parent | None
    trajectory: TrajectoryRef | None


NOTHING_FOUND = Found("none", Confidence.NEW, None, None)


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counts since the start, and what waits now."""

    queued_turns: int
    queued_bytes: int
    commits: int
    committed_turns: int
    failed_commits: int
    unrecorded_turns: int  # turns that could not be written


class Recorder:
    """One a proxy process. `start()` before the first call, `stop()` drains.

    `lane` is how the store is reached; without it, the fastest that the database allows.
    """

    def __init__(self, store: Store, settings: RecorderSettings, lane: Lane | None = None) -> None:
        self._memory = Memory()
        self._lane = lane if lane is not None else lane_for(store, settings.durability)
        self._writer = Writer(self._lane, settings, self._memory)
        self._running = Running(settings.open_row_after_s, self._show)
        database = store.url.database if store.is_sqlite else None
        self._checkpoints = Checkpointer(database) if database and database != ":memory:" else None
        self._keys: dict[str, bytes] = {}
        self.tools = ToolCalls(self._lane, self._writer, self._memory, self._key)

    async def start(self) -> None:
        """Start the writer and what runs beside it."""
        await self._lane.start()
        self._writer.start()
        self._running.start()
        if self._checkpoints is not None:
            self._checkpoints.start()

    async def stop(self) -> None:
        """Commit what is queued, then stop. Calls that still run stay open in the store."""
        await self._running.stop()
        await self._writer.stop()
        if self._checkpoints is not None:
            await self._checkpoints.stop()
        await self._lane.stop()

    def stats(self) -> RecorderStats:
        """For /metrics."""
        counts = self._writer.counts
        return RecorderStats(
            queued_turns=counts.queued_turns,
            queued_bytes=counts.queued_bytes,
            commits=counts.commits,
            committed_turns=counts.committed_turns,
            failed_commits=counts.failed_commits,
            unrecorded_turns=counts.unrecorded_turns,
        )

    # --- whose call is this?

    async def trajectory_at(
        self,
        project_id: str,
        alias_id: str | None,
        address: Address,
        request: Request,
        offered_version: str | None,
    ) -> TrajectoryRef:
        """Find or create the trajectory that `address` names: by trajectory id, or a new member of a named group.

        A sealed one is continued by a new one. The ref's `version_id` is the pin in force: a declared group's, else
        the trajectory's own; `offered_version` becomes the pin where there is none yet. Raises StoreUnavailable.
        """
        if address.trajectory is not None:
            known = self._memory.addresses.get((project_id, address.group or "", address.trajectory))
            if known is not None:
                return known
        key = await self._key(project_id)
        place = Place(
            trajectory_id=new_id("traj"),
            project_id=project_id,
            alias_id=alias_id,
            address_group=address.group or "",
            external_id=address.trajectory,
            implicit_key=_implicit_key(key, alias_id, address, request),
            group_size=address.group_size,
            purpose=address.purpose.value,
            origin=address.origin.value,
            tags=rows.json_text(dict(address.tags)),
            offered_version=offered_version,
            started_at=0.0,  # the store's clock
        )
        return await self._placed(place)

    async def find_parent(
        self, project_id: str, alias_id: str | None, messages: Sequence[Message], request: Request | None = None
    ) -> Found:
        """Which run a call without an address belongs to: issued tool-call ids, else exact lineage.

        With `request`, an SDK's retry is found too (source "retry"): it belongs where the earlier attempt does, or to
        no known run (`trajectory` None) where it could be of several. Does no I/O when there is no assistant message.
        `alias_id` does not narrow the search: a run may use several.
        """
        retried = self._retried(project_id, request) if request is not None else None
        if retried is not None:
            return retried
        if not any(m.get("role") == "assistant" for m in messages):
            return NOTHING_FOUND
        chain = self._memory.chain(await self._key(project_id), messages)
        ends = lineage.assistant_ends(messages, chain)
        return await self._by_issued_ids(project_id, messages, ends) or await self._by_lineage(project_id, ends)

    async def parent_in(self, trajectory: TrajectoryRef, messages: Sequence[Message]) -> Parent | None:
        """The sampled choice of `trajectory` that a conversation goes on from. No I/O where this process wrote it."""
        if not any(m.get("role") == "assistant" for m in messages):
            return None
        project_id = await self._project_of(trajectory)
        if project_id is None:
            return None
        chain = self._memory.chain(await self._key(project_id), messages)
        parent = await self._leaf_in(trajectory.id, lineage.assistant_ends(messages, chain))
        if parent is not None:
            return parent
        issued = await self._issued(project_id, lineage.issued_in(messages))
        return next((choice for choice, home in issued if home == trajectory.id), None)

    async def answered(self, project_id: str, response_id: str) -> tuple[Parent, TrajectoryRef] | None:
        """The sampled choice that a response id of ours stands for, and the trajectory in which calls go on from it."""
        for choice, home in await self._issued(project_id, [response_id]):
            return choice, await self._going_on(home)
        return None

    def forget_issued(self, project_id: str, issued_id: str) -> None:
        """Tell this process that an id stands for nothing any more (`answered.forget`)."""
        self._memory.issued.drop((project_id, issued_id))

    def new_trajectory(self, address: Address, offered_version: str | None) -> TrajectoryRef:
        """A new trajectory without an external id, pinned to `offered_version`. Its row is written with its turn."""
        ref = TrajectoryRef(new_id("traj"), None, None, address.group, offered_version, address.purpose)
        self._memory.fresh.put(ref.id, Fresh())
        return ref

    def repinned(self, trajectory_id: str, version_id: str | None) -> None:
        """Tell this process that a trajectory was pinned anew in the store (`versions.repin`)."""
        known = self._memory.refs.get(trajectory_id)
        if known is not None:
            project_id, ref = known
            remember_ref(self._memory, project_id, replace(ref, version_id=version_id))

    # --- calls

    def begin(self, turn: Turn) -> None:
        """Note a call (state OPEN) that runs now. It is written where it still runs after `open_row_after_s`."""
        self._running.begin(turn)
        body, where = turn.request.body_hash, turn.attribution
        attempt = Earlier(turn.call_id, where.trajectory, where.parent, turn.request.retry_count, complete=False)
        remember_attempt(self._memory, turn.project_id, body, attempt)

    async def commit(self, turn: Turn) -> None:
        """Write an ended call; returns when it is durable, raises StoreUnavailable where it is not.

        How long to wait is the caller's policy (`asyncio.timeout`): the writer goes on and may still commit.
        `address.done` closes the trajectory in the same transaction, unless the call failed: it may be sent again.
        """
        self._running.end(turn.call_id)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._writer.submit(await self._job(turn, done))
        except RecorderError as e:
            self._writer.counts.unrecorded_turns += 1
            if isinstance(e, StoreUnavailable):
                raise
            raise StoreUnavailable(str(e)) from e
        await done

    async def show(self, turn: Turn) -> None:
        """Write a call (state OPEN) that was begun, now rather than when it has run for long. Raises StoreUnavailable.

        How it ends is written by `commit`, as ever.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._writer.submit(await self._job(turn, done))
        except RecorderError as e:
            raise StoreUnavailable(str(e)) from e
        await done

    async def close(
        self,
        project_id: str,
        trajectory_id: str,
        state: TrajectoryState = TrajectoryState.COMPLETED,
        reason: str = "closed",
    ) -> None:
        """Close a trajectory behind its queued turns. Closing a closed one does nothing. Raises NotFound."""
        ref = TrajectoryRef(trajectory_id, None)
        if trajectory_id not in self._memory.fresh:
            known = await self._lane.read(lambda ex: lookup.trajectory(ex, trajectory_id))
            if known is None or known.project_id != project_id:
                raise NotFound(f"no trajectory {trajectory_id!r} in project {project_id!r}")
            if known.state is not TrajectoryState.OPEN:
                self._memory.forget_address(project_id, known.ref)
                return
            ref = known.ref
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(CloseJob(ref, project_id, state, reason, done))
        await done

    async def _job(self, turn: Turn, done: asyncio.Future[None] | None) -> TurnJob:
        key = self._keys.get(turn.project_id) or await self._key(turn.project_id)
        prepared = rows.prepare(turn, key, self._memory)
        fresh = self._memory.fresh.get(prepared.trajectory.id)
        place = None
        if fresh is not None:
            implicit = _implicit_key(key, turn.alias_id, turn.address, turn.request)
            place = batches.place_of(prepared, implicit, fresh.continues)
        return TurnJob(prepared, place, done)

    async def _show(self, turn: Turn) -> None:
        try:
            job = await self._job(turn, None)
            if turn.call_id in self._running:
                self._writer.submit(job)
        # A boundary: the watcher must outlive whatever one call holds, or no long call is ever shown again.
        except Exception as e:  # noqa: BLE001
            log.warning("call %s runs and is not shown as open: %s", turn.call_id, e)

    # --- look-ups

    async def _key(self, project_id: str) -> bytes:
        key = self._keys.get(project_id)
        if key is None:
            found = await self._lane.read(lambda ex: ex.all(sql.NODE_KEY, project=project_id))
            if not found:
                raise NotFound(f"no project {project_id!r} in the store")
            key = self._keys[project_id] = bytes(found[0][0])
        return key

    async def _placed(self, place: Place) -> TrajectoryRef:
        done: asyncio.Future[TrajectoryRef] = asyncio.get_running_loop().create_future()
        self._writer.submit(PlaceJob(place, done))
        return await done

    def _retried(self, project_id: str, request: Request) -> Found | None:
        attempts = self._memory.attempts.get((project_id, request.body_hash)) if request.retry_count > 0 else None
        earlier = [a for a in attempts or () if a.retry_count < request.retry_count]
        # one that never completed is what an SDK asks for again
        candidates = [a for a in earlier if not a.complete] or earlier
        if not candidates:
            return None
        if len({a.trajectory.id for a in candidates}) > 1:  # of which run, nobody can tell: it joins none of them
            return Found("retry", Confidence.AMBIGUOUS, None, None)
        last = candidates[-1]
        return Found("retry", Confidence.EXACT, last.parent, self._current(last.trajectory))

    async def _by_issued_ids(self, project_id: str, messages: Sequence[Message], ends: Sequence[bytes]) -> Found | None:
        issued = await self._issued(project_id, lineage.issued_in(messages))
        if len({home for _, home in issued}) != 1:
            return None  # none that is ours, or of several runs: proves nothing
        choice, home = issued[0]
        parent = await self._leaf_in(home, ends) or choice
        return Found("tool_call_id", Confidence.EXACT, parent, await self._going_on(home))

    async def _by_lineage(self, project_id: str, ends: Sequence[bytes]) -> Found:
        deepest = await self._lane.read(lambda ex: lookup.deepest_sampled(ex, project_id, ends))
        claimed = self._memory.claimed
        decision = lineage.decide(
            replace(m, continued=m.continued or Parent(m.call_id, m.choice) in claimed) for m in deepest
        )
        if decision.match is None:
            return NOTHING_FOUND
        parent = Parent(decision.match.call_id, decision.match.choice)
        claimed.put(parent, True)
        trajectory = await self._going_on(decision.match.trajectory_id)
        return Found("lineage", decision.confidence, parent, trajectory)

    async def _issued(self, project_id: str, ids: Sequence[str]) -> list[tuple[Parent, str]]:
        """The sampled choices (and their trajectories) that issued ids stand for, as far as they do."""
        known = {id_: what for id_ in ids if (what := self._memory.issued.get((project_id, id_))) is not None}
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            known |= await self._lane.read(lambda ex: lookup.issued(ex, project_id, missing))
        return [known[id_] for id_ in ids if id_ in known]

    async def _leaf_in(self, trajectory_id: str, ends: Sequence[bytes]) -> Parent | None:
        """The deepest sampled choice of a trajectory, or of one that it continues, among the ends of a conversation."""
        known = self._memory.leaves.get((trajectory_id, ends[0]))
        if known is not None:
            return known
        return await self._lane.read(lambda ex: lookup.leaf_in(ex, trajectory_id, ends))

    async def _project_of(self, ref: TrajectoryRef) -> str | None:
        known = self._memory.refs.get(ref.id)
        if known is not None:
            return known[0]
        found = await self._lane.read(lambda ex: lookup.trajectory(ex, ref.id))
        return found.project_id if found is not None else None

    def _current(self, ref: TrajectoryRef) -> TrajectoryRef:
        ref = self._memory.moved.get(ref.id) or ref
        known = self._memory.refs.get(ref.id)
        return known[1] if known is not None else ref

    async def _going_on(self, trajectory_id: str) -> TrajectoryRef:
        """The trajectory in which calls of this one go on now: itself while it is open, else its continuation."""
        moved = self._memory.moved.get(trajectory_id)
        known = self._memory.refs.get(moved.id if moved is not None else trajectory_id)
        if known is not None:
            return known[1]
        if moved is not None:
            return moved
        found = await self._lane.read(lambda ex: lookup.trajectory(ex, trajectory_id))
        assert found is not None, "an issued id or a sampled choice without its trajectory"
        if found.state is TrajectoryState.OPEN:
            remember_ref(self._memory, found.project_id, found.ref)
            return found.ref
        # An addressed one is continued at its address when the call is written; one without an address here.
        if found.ref.external_id is not None:
            return found.ref
        ref = replace(found.ref, id=new_id("traj"), group_id=None, version_id=None)
        self._memory.fresh.put(ref.id, Fresh(continues=trajectory_id))
        self._memory.moved.put(trajectory_id, ref)
        return ref


def _implicit_key(key: bytes, alias_id: str | None, address: Address, request: Request) -> str | None:
    if address.group is not None or address.purpose is Purpose.NONE:
        return None
    whose = (
        alias_id or f"model:{request.model}"
    )  # another provider's model has no alias: its runs compare among themselves
    return canonical.implicit_group_key(key, whose, request.messages, request.tools, address.purpose.value)
