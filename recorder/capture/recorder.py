"""The recorder as the proxy process uses it: attribution look-ups, and turns committed in groups.

Owns: the life of the writer and what surrounds it, and the answers to "whose call is this?". Refuses: wire formats,
routing, and deciding what to do when a commit fails: the caller does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recorder.capture import batch as batches
from recorder.capture import rows
from recorder.capture import statements as sql
from recorder.capture.memory import Earlier, Fresh, Memory
from recorder.capture.placing import Place
from recorder.capture.remember import KEPT_ATTEMPTS, remember_attempt, remember_ref
from recorder.capture.running import Running
from recorder.capture.tool_calls import ToolCalls
from recorder.capture.writer import CloseJob, PlaceJob, TurnJob, Writer
from recorder.content import canonical
from recorder.content.redaction import Redaction
from recorder.content.turns import Address, Message, Parent, Request, TrajectoryRef, Turn
from recorder.errors import NotFound, RecorderError, Stale, StoreUnavailable
from recorder.ids import new_id
from recorder.lineage import likeness, lookup, sessions
from recorder.lineage import match as lineage
from recorder.lineage import past as pasts
from recorder.lineage.lookup import Issued
from recorder.lineage.match import has_past
from recorder.lineage.past import Past, RecentPasts
from recorder.lineage.sessions import Asked
from recorder.settings import RecorderSettings
from recorder.states import Confidence, Purpose, TrajectoryState
from recorder.store.checkpoint import Checkpointer
from recorder.store.database import Store
from recorder.store.lanes import Lane, lane_for

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """Which run a conversation belongs to, by what it holds. `confidence` is NEW where `source` is "none"."""

    source: str  # "tool_call_id", "session", "lineage", "retry", "trace", "none"
    confidence: Confidence
    parent: Parent | None
    trajectory: TrajectoryRef | None


_NO_NAMES: Mapping[str, str] = {}
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

    `lane` is how the store is reached; without it, the fastest that the database allows. `process` names this process
    where its lease shows that it runs (`recorder.work.presence`): calls that it leaves open are then closed behind it.
    """

    def __init__(
        self, store: Store, settings: RecorderSettings, lane: Lane | None = None, process: str | None = None
    ) -> None:
        self.redaction = Redaction(settings.redact)
        self._memory = Memory(process)
        self._pasts = RecentPasts()
        self._lane = lane if lane is not None else lane_for(store, settings.durability)
        self._writer = Writer(self._lane, settings, self._memory)
        self._running = Running(settings.open_row_after_s, self._show)
        database = store.url.database if store.is_sqlite else None
        self._checkpoints = Checkpointer(database) if database and database != ":memory:" else None
        self._keys: dict[str, bytes] = {}
        self.tools = ToolCalls(self._lane, self._writer, self._memory, self._key, self.redaction)

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
        session: str | None = None,
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
            implicit_key=_implicit_key(key, alias_id, address, self.redaction.request(request)),
            group_size=address.group_size,
            purpose=address.purpose.value,
            origin=address.origin.value,
            tags=rows.json_text(self.redaction.value(dict(address.tags))),
            offered_version=offered_version,
            started_at=0.0,  # the store's clock
            session=session,
        )
        return await self._placed(place)

    async def find_parent(
        self, project_id: str, alias_id: str | None, messages: Sequence[Message], request: Request | None = None
    ) -> Found:
        """Which run a call without an address belongs to: issued ids, else exact lineage.

        `alias_id` does not narrow the search: a run may use several.
        """
        found = await self.find_issued(project_id, messages)
        if found is NOTHING_FOUND and request is not None:
            found = self.find_retried(project_id, request)
        return found if found is not NOTHING_FOUND else await self.find_lineage(project_id, messages)

    async def find_issued(self, project_id: str, messages: Sequence[Message]) -> Found:
        """Which run a call belongs to by ids that we issued and that come back in it. No I/O where it has no past."""
        if not has_past(messages):
            return NOTHING_FOUND
        messages = self.redaction.messages(messages)
        ends = await self._ends(project_id, messages)
        return await self._by_issued_ids(project_id, messages, ends) or NOTHING_FOUND

    def find_retried(self, project_id: str, request: Request) -> Found:
        """Where what an SDK sends again belongs: where the attempt does that was not answered.

        `trajectory` is None where that could be several: it joins no known run.
        """
        return self._retried(project_id, self.redaction.request(request)) or NOTHING_FOUND

    async def find_lineage(
        self,
        project_id: str,
        messages: Sequence[Message],
        names: Mapping[str, str] = _NO_NAMES,
        traces: Iterable[str] = (),
    ) -> Found:
        """Which run a call belongs to by its history: the one that sampled the end of it. No I/O where it has none.

        `names` are sessions that the call names loosely, with the source to tell: they tell equal runs apart. `traces`
        only choose among those that stay equal.
        """
        if not has_past(messages):
            return NOTHING_FOUND
        messages = self.redaction.messages(messages)
        ends = lineage.last_answers(messages, await self._ends(project_id, messages))
        return await self._by_lineage(project_id, ends, names, traces)

    async def find_in_session(
        self, project_id: str, session: str, group: str | None, request: Request, *, sub_agent: bool = False
    ) -> Found | None:
        """Which run of a session a call belongs to; `trajectory` is None where that is a new one (source "session").

        None where the name tells nothing, as too many runs share it.
        """
        as_sent, request = request, self.redaction.request(request)
        group, messages = group or "", request.messages
        key = await self._key(project_id)
        tools = canonical.content_id(key, canonical.dumps(request.tools)) if request.tools else None
        ends = await self._ends(project_id, messages) if has_past(messages) else []
        asked = Asked(project_id, session, group, messages, ends, tools, sub_agent)
        claimed = self._memory.claimed
        seat = await self._lane.read(lambda ex: sessions.seat(ex, asked, claimed))
        if seat is None:
            return None
        if seat.trajectory_id is not None:
            if seat.parent is not None:
                claimed.put(seat.parent, True)
            return Found("session", seat.confidence, seat.parent, await self._going_on(seat.trajectory_id))
        retried = self._retried(project_id, request, lambda ref: _is_of(ref, session, group))
        if retried is not None:
            return retried
        ref = (
            None if ends else sessions.beside(self._running.turns(), replace(asked, messages=as_sent.messages), as_sent)
        )
        return Found("session", Confidence.STATED, None, self._current(ref) if ref is not None else None)

    async def find_traced(self, project_id: str, traces: Iterable[str], messages: Sequence[Message]) -> Found:
        """Which run a conversation with a past may belong to, as all calls of its trace that we know do. A hint."""
        if not has_past(messages):
            return NOTHING_FOUND
        for trace in traces:
            home = self._memory.traces.get((project_id, trace))
            if home:
                ref = await self._going_on(home)
                return Found("trace", Confidence.HINT, await self.parent_in(ref, messages), ref)
        return NOTHING_FOUND

    def note_traces(self, project_id: str, traces: Iterable[str], trajectory_id: str) -> None:
        """A call of these traces was placed. A trace with calls of several runs tells nothing from then on."""
        for trace in traces:
            known = self._memory.traces.get((project_id, trace))
            self._memory.traces.put((project_id, trace), trajectory_id if known in (None, trajectory_id) else "")

    async def parent_in(self, trajectory: TrajectoryRef, messages: Sequence[Message]) -> Parent | None:
        """The sampled choice of `trajectory` that a conversation goes on from. No I/O where this process wrote it."""
        if not has_past(messages):
            return None
        project_id = await self._project_of(trajectory)
        if project_id is None:
            return None
        messages = self.redaction.messages(messages)
        parent = await self._leaf_in(trajectory.id, await self._ends(project_id, messages))
        if parent is not None:
            return parent
        issued = await self._issued(project_id, lineage.issued_in(messages))
        parent = next((i.choice for i in issued if i.trajectory_id == trajectory.id), None)
        if parent is not None:
            return parent
        said = await self._lane.read(lambda ex: lookup.said_in(ex, [trajectory.id]))
        return next((s.choice for s in likeness.come_back(messages, said)), None)

    async def answered(self, project_id: str, response_id: str) -> tuple[Parent, TrajectoryRef] | None:
        """The sampled choice that a response id of ours stands for, and the trajectory in which calls go on from it."""
        for issued in await self._issued(project_id, [response_id]):
            return issued.choice, await self._going_on(issued.trajectory_id)
        return None

    def forget_issued(self, project_id: str, issued_id: str) -> None:
        """Tell this process that an id stands for nothing any more (`answered.forget`)."""
        self._memory.issued.drop((project_id, issued_id))

    def new_trajectory(
        self, address: Address, offered_version: str | None, session: str | None = None
    ) -> TrajectoryRef:
        """A new trajectory without an external id, pinned to `offered_version`. Its row is written with its turn."""
        ref = TrajectoryRef(new_id("traj"), None, None, address.group, offered_version, address.purpose, session)
        self._memory.fresh.put(ref.id, Fresh())
        return ref

    def repinned(self, trajectory_id: str, version_id: str | None) -> None:
        """Tell this process that a trajectory was pinned anew in the store (`versions.repin`)."""
        known = self._memory.refs.get(trajectory_id)
        if known is not None:
            project_id, ref = known
            remember_ref(self._memory, project_id, replace(ref, version_id=version_id))

    # --- what a turn goes on from, in tokens

    def keep_pasts(self, max_bytes: int) -> None:
        """Keep the tokens of what is sampled from now on in memory, so that `past` seldom asks the store."""
        self._pasts.max_bytes = max_bytes

    async def past(
        self, project_id: str, parent: Parent, messages: Sequence[Message]
    ) -> tuple[Past, int | None] | None:
        """The exact tokens up to and including a sampled choice, and where in `messages` its message stands.

        The place is None where the conversation up to there is not the one that was sampled in: it was edited.
        Returns None where no such choice is stored. Raises StoreUnavailable, CorruptRecord.
        """
        past = self._pasts.get(parent) or await self._lane.read(lambda ex: pasts.read(ex, parent))
        if past is None:
            return None
        chain = self._memory.known_chain(await self._key(project_id), self.redaction.messages(messages))
        return past, chain.index(past.node) if past.node in chain else None

    # --- calls

    def begin(self, turn: Turn) -> None:
        """Note a call (state OPEN) that runs now. It is written where it still runs after `open_row_after_s`."""
        self._running.begin(turn)
        body, where = self.redaction.request(turn.request).body_hash, turn.attribution
        count, confidence = turn.request.retry_count, where.confidence
        attempt = Earlier(turn.call_id, where.trajectory, where.parent, count, False, confidence)
        remember_attempt(self._memory, turn.project_id, body, attempt)

    async def commit(self, turn: Turn) -> None:
        """Write an ended call; returns when it is durable, raises StoreUnavailable where it is not.

        How long to wait is the caller's policy (`asyncio.timeout`): the writer goes on and may still commit.
        `address.done` closes the trajectory in the same transaction, unless the call failed: it may be sent again.
        """
        self._running.end(turn.call_id)
        while not await self._committed(turn):
            pass

    async def _committed(self, turn: Turn) -> bool:
        """Write an ended call; False where something was deleted meanwhile and it must be prepared anew."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            job = await self._job(turn, done)
            self._writer.submit(job)
        except RecorderError as e:
            self._writer.counts.unrecorded_turns += 1
            if isinstance(e, StoreUnavailable):
                raise
            raise StoreUnavailable(str(e)) from e
        if not await _unless_stale(done):
            self._pasts.forget()
            return False
        pasts.keep(self._pasts, job.prepared)
        return True

    async def show(self, turn: Turn) -> None:
        """Write a call (state OPEN) that was begun, now rather than when it has run for long. Raises StoreUnavailable.

        How it ends is written by `commit`, as ever.
        """
        while not await self._shown(turn):
            pass

    async def _shown(self, turn: Turn) -> bool:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._writer.submit(await self._job(turn, done))
        except RecorderError as e:
            raise StoreUnavailable(str(e)) from e
        return await _unless_stale(done)

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
        self._writer.submit(CloseJob(ref, project_id, state, self.redaction.text(reason), done))
        await done

    async def _job(self, turn: Turn, done: asyncio.Future[None] | None) -> TurnJob:
        key = self._keys.get(turn.project_id) or await self._key(turn.project_id)
        turn = self.redaction.turn(turn)
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
            self._memory.deletions.setdefault(project_id, found[0][1])
        return key

    async def _placed(self, place: Place) -> TrajectoryRef:
        done: asyncio.Future[TrajectoryRef] = asyncio.get_running_loop().create_future()
        self._writer.submit(PlaceJob(place, done))
        return await done

    def _retried(
        self, project_id: str, request: Request, within: Callable[[TrajectoryRef], bool] = lambda _: True
    ) -> Found | None:
        """What an SDK sends again: the one attempt at it that was not answered. What was answered may be another's."""
        attempts = self._memory.attempts.get((project_id, request.body_hash)) if request.retry_count > 0 else None
        known = sorted((a for a in attempts or () if within(a.trajectory)), key=lambda a: a.retry_count)
        last = {a.trajectory.id: a for a in known}
        # an SDK counts: what was sent again as often as this already is somebody else's
        broken = [a for a in last.values() if not a.complete and a.retry_count < request.retry_count]
        if len(broken) == 1 and len(attempts or ()) < KEPT_ATTEMPTS:
            attempt = broken[0]
            sure = attempt.confidence not in (Confidence.AMBIGUOUS, Confidence.HINT)
            confidence = Confidence.EXACT if sure else attempt.confidence
            return Found("retry", confidence, attempt.parent, self._current(attempt.trajectory))
        if not known or has_past(request.messages):
            return None
        return Found("retry", Confidence.AMBIGUOUS, None, None)  # of which run, nobody can tell: it joins none

    async def _by_issued_ids(self, project_id: str, messages: Sequence[Message], ends: Sequence[bytes]) -> Found | None:
        issued = await self._issued(project_id, lineage.issued_in(messages))
        if len({i.trajectory_id for i in issued}) != 1:
            return None  # none that is ours, or of several runs: proves nothing
        home = issued[0].trajectory_id
        parent = await self._leaf_in(home, ends) or issued[0].choice
        confidence = Confidence.HINT if any(i.hinted for i in issued) else Confidence.EXACT
        return Found("tool_call_id", confidence, parent, await self._going_on(home))

    async def _by_lineage(
        self, project_id: str, ends: Sequence[bytes], names: Mapping[str, str], traces: Iterable[str]
    ) -> Found:
        deepest = await self._lane.read(lambda ex: lookup.deepest_sampled(ex, project_id, ends))
        claimed = self._memory.claimed
        matches = [replace(m, continued=m.continued or Parent(m.call_id, m.choice) in claimed) for m in deepest]
        named = [m for m in matches if m.session in names]
        decision = lineage.decide(named or matches)
        match = decision.match
        if match is None:
            return NOTHING_FOUND
        source = names[match.session or ""] if named and len(named) < len(matches) else "lineage"
        exact = decision.confidence is Confidence.EXACT
        if not exact:
            homes = {self._memory.traces.get((project_id, trace)) for trace in traces}
            traced = lineage.decide(m for m in named or matches if m.trajectory_id in homes).match
            match, source = (traced, "trace") if traced is not None else (match, source)
        parent = Parent(match.call_id, match.choice)
        claimed.put(parent, True)
        confidence = Confidence.HINT if exact and match.hinted else decision.confidence
        return Found(source, confidence, parent, await self._going_on(match.trajectory_id))

    async def _ends(self, project_id: str, messages: Sequence[Message]) -> list[bytes]:
        return lineage.assistant_ends(messages, self._memory.chain(await self._key(project_id), messages))

    async def _issued(self, project_id: str, ids: Sequence[str]) -> list[Issued]:
        """The sampled choices (and their trajectories) that issued ids stand for, as far as they do."""
        remembered = {id_: self._memory.issued.get((project_id, id_)) for id_ in ids}
        known = {id_: Issued(*what) for id_, what in remembered.items() if what is not None}
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
        if found is None:  # deleted, since this process heard of it
            gone = TrajectoryRef(new_id("traj"), None)
            self._memory.fresh.put(gone.id, Fresh())
            return gone
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


def _is_of(ref: TrajectoryRef, session: str, group: str) -> bool:
    return ref.session == session and (ref.group_external_id or "") == group


async def _unless_stale(done: asyncio.Future[None]) -> bool:
    """Wait for a write; False where something was deleted meanwhile, and it must be prepared anew."""
    try:
        await done
    except Stale:
        return False
    return True


def _implicit_key(key: bytes, alias_id: str | None, address: Address, request: Request) -> str | None:
    if address.group is not None or address.purpose is Purpose.NONE:
        return None
    whose = (
        alias_id or f"model:{request.model}"
    )  # another provider's model has no alias: its runs compare among themselves
    return canonical.implicit_group_key(key, whose, request.messages, request.tools, address.purpose.value)
