"""Attribute a call to its trajectory by what this process and the store know.

Owns: one method per kind of evidence; where calls of an ended trajectory continue; and caches used only for
attribution: choices assigned to running calls, and traces. A caller gets its own trajectories only. Refuses: the order
of evidence (the proxy decides), creating a trajectory, and writing (`recorder.capture.recorder`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recorder.capture.cache import CaptureCache, RetryCandidate, UnwrittenTrajectory
from recorder.capture.cache_updates import KEPT_ATTEMPTS, remember_engine, remember_ref
from recorder.capture.lookups import client_sessions, recorded_calls
from recorder.capture.lookups.client_sessions import SessionCall
from recorder.capture.lookups.recorded_calls import IssuedId
from recorder.capture.lookups.similar_conversations import find_similar
from recorder.capture.open_calls import OpenCalls
from recorder.capture.trajectories import require_owner
from recorder.ids import new_id
from recorder.messages import content_hashes, lineage
from recorder.messages.calls import (
    ANYBODY,
    Address,
    KeyAccess,
    Message,
    ParentCall,
    RecordedRequest,
    TrajectoryRef,
)
from recorder.messages.lineage import ConversationAnswer, has_answer
from recorder.messages.redaction import Redactor
from recorder.states import Confidence, TrajectoryState
from recorder.store.write_backends import Executor, WriteBackend


@dataclass(frozen=True, slots=True)
class Resolution:
    """The trajectory that a conversation belongs to, and the evidence. `confidence` is NEW if `source` is "none"."""

    source: str  # "tool_call_id", "session", "lineage", "retry", "similar", "trace", "none"
    confidence: Confidence
    parent: ParentCall | None
    trajectory: TrajectoryRef | None


_NO_NAMES: Mapping[str, str] = {}
NOTHING_FOUND = Resolution("none", Confidence.NEW, None, None)


class TrajectoryResolver:
    """Attributes calls to trajectories; a recorder has one as `find`. It examines calls after redaction."""

    def __init__(
        self,
        backend: WriteBackend,
        memory: CaptureCache,
        key_of: Callable[[str], Awaitable[bytes]],
        running: OpenCalls,
        redaction: Redactor,
        *,
        similar: bool = True,
    ) -> None:
        self._backend = backend
        self._memory = memory
        self._key_of = key_of
        self._running = running
        self._redaction = redaction
        self._finds_similar = similar

    async def run(
        self,
        project_id: str,
        messages: Sequence[Message],
        request: RecordedRequest | None = None,
        access: KeyAccess = ANYBODY,
    ) -> Resolution:
        """Attribute a call without an address by issued ids, else by a retry, else by its history.

        A trajectory may use any alias.
        """
        found = await self.issued(project_id, messages, access)
        if found is NOTHING_FOUND and request is not None:
            found = await self.retried(project_id, request, access)
        if found is NOTHING_FOUND:
            found = await self.lineage(project_id, messages, access=access)
        return found if found is not NOTHING_FOUND else await self.similar(project_id, messages, access)

    async def issued(self, project_id: str, messages: Sequence[Message], access: KeyAccess = ANYBODY) -> Resolution:
        """Attribute a call by ids that Hone issued and that it contains. No I/O for a call without earlier answers."""
        if not has_answer(messages):
            return NOTHING_FOUND
        messages = self._redaction.messages(messages)
        if not messages:
            return NOTHING_FOUND
        ends = await self._ends(project_id, messages)
        return await self._by_issued_ids(project_id, messages, ends, access) or NOTHING_FOUND

    async def retried(self, project_id: str, request: RecordedRequest, access: KeyAccess = ANYBODY) -> Resolution:
        """Attribute an SDK's retry to the trajectory of the unanswered request that it repeats.

        `trajectory` is None if there are several such requests: the call then joins none.
        """
        return await self._retried(project_id, self._redaction.request(request), access) or NOTHING_FOUND

    async def lineage(
        self,
        project_id: str,
        messages: Sequence[Message],
        names: Mapping[str, str] = _NO_NAMES,
        traces: Iterable[str] = (),
        access: KeyAccess = ANYBODY,
    ) -> Resolution:
        """Attribute a call to the trajectory that sampled the end of its history. No I/O without a history.

        `names` are session names in the call that are only hints, each with its source: they distinguish equal
        trajectories. `traces` only choose among those that are still equal.
        """
        if not has_answer(messages):
            return NOTHING_FOUND
        messages = self._redaction.messages(messages)
        if not messages:
            return NOTHING_FOUND
        told = await self._told(project_id, messages)
        return await self._by_lineage(project_id, told, names, traces, access)

    async def similar(self, project_id: str, messages: Sequence[Message], access: KeyAccess = ANYBODY) -> Resolution:
        """Attribute a call whose history is a recorded one apart from system messages, or a part of one.

        Exact where only one open trajectory has that conversation. No I/O without a history.
        """
        if not self._finds_similar or not has_answer(messages):
            return NOTHING_FOUND
        messages, key = self._redaction.messages(messages), await self._key_of(project_id)
        claimed = self._memory.claimed
        matches = [one.match for one in await find_similar(self._backend, project_id, key, messages, access)]
        decision = lineage.decide_parent(
            replace(m, continued=m.continued or ParentCall(m.call_id, m.choice) in claimed) for m in matches
        )
        best = decision.match
        if best is None:
            return NOTHING_FOUND
        parent = ParentCall(best.call_id, best.choice)
        claimed.put(parent, True)
        confidence = decision.confidence if best.open else Confidence.AMBIGUOUS
        if confidence is Confidence.EXACT and best.hinted:
            confidence = Confidence.HINT
        return Resolution("similar", confidence, parent, await self._going_on(best.trajectory_id, access))

    async def in_session(
        self,
        project_id: str,
        session: str,
        group: str | None,
        request: RecordedRequest,
        *,
        sub_agent: bool = False,
        access: KeyAccess = ANYBODY,
    ) -> Resolution | None:
        """Attribute a call within a session. `trajectory` is None for a new one of the session (source "session").

        Returns None if too many trajectories share the session's name.
        """
        as_sent, request = request, self._redaction.request(request)
        group, messages = group or "", request.messages
        key = await self._key_of(project_id)
        tools = self._memory.content_id(key, content_hashes.canonical_json(request.tools)) if request.tools else None
        ends = await self._ends(project_id, messages) if has_answer(messages) else []
        told = await self._told(project_id, messages) if ends else []
        asked = SessionCall(project_id, session, group, messages, ends, told, tools, sub_agent, access)
        claimed = self._memory.claimed
        seat = await self._backend.read(lambda ex: client_sessions.find_position(ex, asked, claimed))
        if seat is None:
            return None
        if seat.trajectory_id is not None:
            if seat.parent is not None:
                claimed.put(seat.parent, True)
            return Resolution("session", seat.confidence, seat.parent, await self._going_on(seat.trajectory_id, access))
        retried = await self._retried(project_id, request, access, lambda ref: _is_of(ref, session, group))
        if retried is not None:
            return retried
        if ends:
            return Resolution("session", Confidence.STATED, None, None)
        ref = client_sessions.find_concurrent_parent(
            self._running.turns(), replace(asked, messages=as_sent.messages), as_sent
        )
        return Resolution(
            "session", Confidence.STATED, None, await self._current(ref, access) if ref is not None else None
        )

    async def traced(
        self, project_id: str, traces: Iterable[str], messages: Sequence[Message], access: KeyAccess = ANYBODY
    ) -> Resolution:
        """Attribute a conversation with earlier answers by its trace, if all known calls of the trace agree. A hint."""
        if not has_answer(messages):
            return NOTHING_FOUND
        for trace in traces:
            home = self._memory.traces.get((project_id, access.key, trace))
            if home:
                ref = await self._going_on(home, access)
                return Resolution("trace", Confidence.HINT, await self.parent_in(ref, messages), ref)
        return NOTHING_FOUND

    def run_of_trace(self, project_id: str, trace: str, access: KeyAccess = ANYBODY) -> str | None:
        """Return the id of the only trajectory of a trace's or span's attributed calls, once it has a row, or None."""
        home = self._memory.traces.get((project_id, access.key, trace))
        return home if home and home not in self._memory.unwritten else None

    def note_traces(
        self, project_id: str, traces: Iterable[str], trajectory_id: str, access: KeyAccess = ANYBODY
    ) -> None:
        """Note that a call of these traces and spans was attributed.

        From then on, a trace or span with calls of several trajectories is ignored.
        """
        for trace in traces:
            key = (project_id, access.key, trace)
            known = self._memory.traces.get(key)
            self._memory.traces.put(key, trajectory_id if known in (None, trajectory_id) else "")

    def remembered(
        self, project_id: str, address: Address, messages: Sequence[Message]
    ) -> tuple[TrajectoryRef, bool] | None:
        """Return the trajectory that the caches know for a call, and whether the caller named it. No I/O.

        It is the one at the call's address, else that of the tool-call ids in its history. Raises NotOwner if the
        address belongs to another key.
        """
        if address.trajectory is not None:
            at = self._memory.addresses.get((project_id, address.group or "", address.trajectory))
            return (require_owner(at, address), True) if at is not None else None
        ids = map(content_hashes.issued_id_key, lineage.issued_tool_call_ids(self._redaction.messages(messages)))
        issued = [found for id_ in ids if (found := self._memory.issued.get((project_id, id_))) is not None]
        homes = {home for _, home, made_by in issued if address.access.owns(made_by)}
        known = self._memory.refs.get(homes.pop()) if len(homes) == 1 else None
        return (known[1], False) if known is not None else None

    async def parent_in(self, trajectory: TrajectoryRef, messages: Sequence[Message]) -> ParentCall | None:
        """Return the sampled choice of `trajectory` that a conversation continues. No I/O if this process wrote it."""
        if not has_answer(messages):
            return None
        project_id = await self._project_of(trajectory)
        if project_id is None:
            return None
        messages = self._redaction.messages(messages)
        if not messages:
            return None
        parent = await self._told_in(project_id, trajectory.id, messages, await self._ends(project_id, messages))
        if parent is not None:
            return parent
        issued = await self._stand_for(project_id, lineage.issued_tool_call_ids(messages))
        parent = next((i.choice for i in issued if i.trajectory_id == trajectory.id), None)
        if parent is None and issued:
            homes = await self._backend.read(lambda ex: recorded_calls.find_continued(ex, trajectory.id))
            parent = next((i.choice for i in issued if i.trajectory_id in homes), None)
        if parent is not None:
            return parent
        said = await self._backend.read(lambda ex: recorded_calls.find_answers_in(ex, [trajectory.id]))
        return next((s.choice for s in lineage.matching_exchanges(messages, said)), None)

    async def with_stored_engine(self, ref: TrajectoryRef, parent: ParentCall | None) -> TrajectoryRef:
        """Return a trajectory with its engine as stored, if another process recorded the call that its next one
        continues: that process may have moved it. No I/O if this process recorded it.
        """
        if parent is None or parent in self._memory.hashes or ref.id in self._memory.unwritten:
            return ref
        found = await self._backend.read(lambda ex: recorded_calls.find_trajectory(ex, ref.id))
        engine_url = found.ref.engine_url if found is not None else None
        if engine_url is None or engine_url == ref.engine_url:
            return ref
        remember_engine(self._memory, ref.id, engine_url)
        return replace(ref, engine_url=engine_url)

    async def answered(
        self, project_id: str, response_id: str, access: KeyAccess = ANYBODY
    ) -> tuple[ParentCall, TrajectoryRef] | None:
        """Return the sampled choice of a response id of Hone, and the trajectory in which calls continue it."""
        for issued in await self._stand_for(project_id, [response_id], access):
            return issued.choice, await self._going_on(issued.trajectory_id, access)
        return None

    # --- kinds of evidence

    async def _retried(
        self,
        project_id: str,
        request: RecordedRequest,
        access: KeyAccess,
        within: Callable[[TrajectoryRef], bool] = lambda _: True,
    ) -> Resolution | None:
        """Find the one unanswered request that an SDK's retry repeats. An answered one may be another client's."""
        if request.retry_count <= 0:
            return None
        attempts = self._attempts_at(project_id, request.body_hash, access)
        known = sorted((a for a in attempts if within(a.trajectory)), key=lambda a: a.retry_count)
        attempt = _unanswered(known, request.retry_count) if len(attempts) < KEPT_ATTEMPTS else None
        if attempt is not None:
            sure = attempt.confidence not in (Confidence.AMBIGUOUS, Confidence.HINT)
            confidence = Confidence.EXACT if sure else attempt.confidence
            return Resolution("retry", confidence, attempt.parent, await self._current(attempt.trajectory, access))
        if not known or has_answer(request.messages):
            return None
        return Resolution("retry", Confidence.AMBIGUOUS, None, None)  # ambiguous: the call joins no trajectory

    def _attempts_at(self, project_id: str, body_hash: bytes, access: KeyAccess) -> list[RetryCandidate]:
        """Return earlier requests with this body, of this key and of trajectories without an owner."""
        of = {"", access.key}
        return [a for key in of for a in self._memory.attempts.get((project_id, key, body_hash)) or ()]

    async def _by_issued_ids(
        self, project_id: str, messages: Sequence[Message], ends: Sequence[bytes], access: KeyAccess
    ) -> Resolution | None:
        issued = await self._stand_for(project_id, lineage.issued_tool_call_ids(messages), access)
        if len({i.trajectory_id for i in issued}) != 1:
            return None  # no issued id, or ids of several trajectories: no evidence
        if not lineage.has_tool_calls(messages) and await self._is_sampled(project_id, messages, access):
            return None  # a text that Hone sampled, verbatim: the history decides, not the ids in it
        home = issued[0].trajectory_id
        parent = await self._told_in(project_id, home, messages, ends) or issued[0].choice
        confidence = Confidence.HINT if any(i.hinted for i in issued) else Confidence.EXACT
        return Resolution("tool_call_id", confidence, parent, await self._going_on(home, access))

    async def _by_lineage(
        self,
        project_id: str,
        told: Sequence[ConversationAnswer],
        names: Mapping[str, str],
        traces: Iterable[str],
        access: KeyAccess,
    ) -> Resolution:
        deepest = await self._backend.read(lambda ex: recorded_calls.find_sampled_before(ex, project_id, told, access))
        claimed = self._memory.claimed
        matches = [replace(m, continued=m.continued or ParentCall(m.call_id, m.choice) in claimed) for m in deepest]
        named = [m for m in matches if m.session in names]
        decision = lineage.decide_parent(named or matches)
        best = decision.match
        if best is None:
            return NOTHING_FOUND
        source = names[best.session or ""] if named and len(named) < len(matches) else "lineage"
        exact = decision.confidence is Confidence.EXACT
        if not exact:
            homes = {self._memory.traces.get((project_id, access.key, trace)) for trace in traces}
            traced = lineage.decide_parent(m for m in named or matches if m.trajectory_id in homes).match
            best, source = (traced, "trace") if traced is not None else (best, source)
        parent = ParentCall(best.call_id, best.choice)
        claimed.put(parent, True)
        confidence = Confidence.HINT if exact and best.hinted else decision.confidence
        return Resolution(source, confidence, parent, await self._going_on(best.trajectory_id, access))

    # --- lookups

    async def _ends(self, project_id: str, messages: Sequence[Message]) -> list[bytes]:
        return lineage.answer_nodes(messages, self._memory.chain(await self._key_of(project_id), messages))

    async def _told(self, project_id: str, messages: Sequence[Message]) -> list[ConversationAnswer]:
        return lineage.last_answers(messages, self._memory.known_chain(await self._key_of(project_id), messages))

    async def _is_sampled(self, project_id: str, messages: Sequence[Message], access: KeyAccess) -> bool:
        nodes = [turn.node for turn in await self._told(project_id, messages)]
        return bool(
            await self._backend.read(lambda ex: recorded_calls.find_deepest_sampled(ex, project_id, nodes, access))
        )

    async def _stand_for(self, project_id: str, ids: Sequence[str], access: KeyAccess = ANYBODY) -> list[IssuedId]:
        """Return the caller's sampled choices (and their trajectories) for which these ids were issued."""
        ids = [content_hashes.issued_id_key(id_) for id_ in ids]
        remembered = {id_: self._memory.issued.get((project_id, id_)) for id_ in ids}
        known = {id_: IssuedId(*what) for id_, what in remembered.items() if what is not None}
        missing = [id_ for id_ in ids if id_ not in known]
        if missing:
            known |= await self._backend.read(lambda ex: recorded_calls.find_issued_ids(ex, project_id, missing))
        return [known[id_] for id_ in ids if id_ in known and access.owns(known[id_].made_by)]

    async def _told_in(
        self, project_id: str, trajectory_id: str, messages: Sequence[Message], ends: Sequence[bytes]
    ) -> ParentCall | None:
        """Return the deepest sampled choice of a trajectory that a conversation repeats, verbatim or in another form.

        Only the last answers may have another form (`lineage.last_answers`): earlier ones were recorded in the form
        in which the client sent them.
        """
        if (known := self._memory.leaves.get((trajectory_id, ends[0]))) is not None:
            return known
        told = await self._told(project_id, messages)
        for end, turn in zip(ends, told, strict=False):
            leaf = await self._leaf_in(trajectory_id, [end]) or await self._retold_in(project_id, trajectory_id, turn)
            if leaf is not None:
                return leaf
        return await self._leaf_in(trajectory_id, ends[len(told) :])

    async def _retold_in(self, project_id: str, trajectory_id: str, turn: ConversationAnswer) -> ParentCall | None:
        """Return the choice of a trajectory, or of one that it continues, that a message repeats in another form."""

        def find(ex: Executor) -> list[lineage.Match]:
            here = recorded_calls.find_retold_in(ex, project_id, turn, [trajectory_id], ANYBODY)
            homes = [] if here else recorded_calls.find_continued(ex, trajectory_id)
            return recorded_calls.find_retold_in(ex, project_id, turn, homes, ANYBODY) if len(homes) > 1 else here

        retold = await self._backend.read(find)
        best = lineage.decide_parent(retold).match
        return ParentCall(best.call_id, best.choice) if best is not None else None

    async def _leaf_in(self, trajectory_id: str, ends: Sequence[bytes]) -> ParentCall | None:
        """Return the deepest sampled choice among `ends`, of a trajectory or of one that it continues."""
        known = self._memory.leaves.get((trajectory_id, ends[0])) if ends else None
        if known is not None or not ends:
            return known
        return await self._backend.read(lambda ex: recorded_calls.find_leaf_in(ex, trajectory_id, ends))

    async def _project_of(self, ref: TrajectoryRef) -> str | None:
        known = self._memory.refs.get(ref.id)
        if known is not None:
            return known[0]
        found = await self._backend.read(lambda ex: recorded_calls.find_trajectory(ex, ref.id))
        return found.project_id if found is not None else None

    async def _current(self, ref: TrajectoryRef, access: KeyAccess) -> TrajectoryRef:
        """`_going_on` for a trajectory that may have no row yet."""
        return ref if ref.id in self._memory.unwritten else await self._going_on(ref.id, access)

    async def _going_on(self, trajectory_id: str, access: KeyAccess) -> TrajectoryRef:
        """Return the trajectory in which calls of this one continue: itself while it is open, else its continuation."""
        moved = self._memory.moved.get(trajectory_id)
        known = self._memory.refs.get(moved.id if moved is not None else trajectory_id)
        if known is not None:
            return known[1]
        if moved is not None:
            return moved
        found = await self._backend.read(lambda ex: recorded_calls.find_trajectory(ex, trajectory_id))
        if found is None:  # deleted since this process cached it
            gone = TrajectoryRef(new_id("traj"), None, made_by=access.key)
            self._memory.unwritten.put(gone.id, UnwrittenTrajectory())
            return gone
        if found.state is TrajectoryState.OPEN:
            remember_ref(self._memory, found.project_id, found.ref)
            return found.ref
        # A trajectory with an address is continued when the call is written; one without an address is continued here.
        if found.ref.external_id is not None:
            return found.ref
        ref = replace(found.ref, id=new_id("traj"), group_id=None, version_id=None)
        self._memory.unwritten.put(ref.id, UnwrittenTrajectory(continues=trajectory_id))
        self._memory.moved.put(trajectory_id, ref)
        return ref


def _unanswered(attempts: Sequence[RetryCandidate], retry_count: int) -> RetryCandidate | None:
    """Return the one of equal requests (in order of retry counts) that a retry with this count can repeat, or None.

    A stray retry, which got its own trajectory, may have answered any request with a lower count, so those are
    ambiguous.
    """
    last = {a.trajectory.id: a for a in attempts}
    first = {a.trajectory.id: a for a in reversed(attempts)}
    stray = max((a.retry_count for a in first.values()), default=0)
    # SDKs count their retries: a request with the same count belongs to another client
    broken = [a for a in last.values() if not a.complete and a.retry_count < retry_count]
    return broken[0] if len(broken) == 1 and broken[0].retry_count >= stray else None


def _is_of(ref: TrajectoryRef, session: str, group: str) -> bool:
    return ref.session == session and (ref.group_external_id or "") == group
