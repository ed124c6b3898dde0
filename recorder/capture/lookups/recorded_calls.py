"""Query recorded calls that are not cached: issued ids, sampled answers, block hashes, trajectories.

Owns: the meaning of these rows. Runs on an `Executor`. Refuses: deciding (`recorder.messages.lineage`), caching
(`recorder.capture.cache`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.capture.lookups import statements as sql
from recorder.messages import lineage
from recorder.messages.calls import KeyAccess, Message, ParentCall, TrajectoryRef
from recorder.messages.lineage import ConversationAnswer, Match, decide_parent
from recorder.messages.tokens import BLOCK, HASH_BYTES
from recorder.states import Confidence, Purpose, TrajectoryState
from recorder.store.write_backends import Executor, Row


@dataclass(frozen=True, slots=True)
class KnownTrajectory:
    """A trajectory as stored."""

    ref: TrajectoryRef
    state: TrajectoryState
    project_id: str


@dataclass(frozen=True, slots=True)
class IssuedId:
    """The choice and trajectory for which Hone issued an id."""

    choice: ParentCall
    trajectory_id: str
    made_by: str  # the trajectory's owner
    hinted: bool = False  # only a hint assigned its call to the trajectory


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """A recorded answer to the same question as a call's last answer, and its node."""

    match: Match
    node: bytes


@dataclass(frozen=True, slots=True)
class SessionTrajectories:
    """A session's stored trajectories, the newest first, and the matches of a conversation in them."""

    ids: Sequence[str]
    open_ids: Sequence[str]
    matches: Sequence[Match]


def find_trajectory(ex: Executor, trajectory_id: str) -> KnownTrajectory | None:
    """Return a trajectory by its id, or None."""
    for row in ex.all(sql.BY_IDS, ids=[trajectory_id]):
        group_pin = row[16] if row[14] is not None or row[15] is not None else None
        version = row[10] or group_pin
        ref = TrajectoryRef(row[0], row[11], row[3], row[2] or None, version, Purpose(row[6]), *row[17:])
        return KnownTrajectory(ref, TrajectoryState(row[5]), row[1])
    return None


def find_issued_ids(ex: Executor, project_id: str, ids: Sequence[str]) -> dict[str, IssuedId]:
    """Return the choice and trajectory of each id that Hone issued exactly once."""
    rows = ex.all(sql.ISSUED, project=project_id, ids=list(ids)) if ids else ()
    return {
        row[0]: IssuedId(ParentCall(row[2], row[3]), row[4], row[6] or "", row[5] == Confidence.HINT)
        for row in rows
        if row[1] != sql.AMBIGUOUS_ISSUED
    }


def find_deepest_sampled(ex: Executor, project_id: str, ends: Sequence[bytes], access: KeyAccess) -> list[Match]:
    """Return the caller's sampled choices at the first of `ends` with any, the newest first, at most `MOST_EQUAL`."""
    present = {bytes(row[0]) for row in ex.all(sql.SAMPLED_NODES, nodes=list(ends))} if ends else set()
    for end in ends:
        rows = ex.all(sql.SAMPLED_LEAVES, node=end, access=access.key) if end in present else ()
        matches = [_match(row[:8]) for row in rows if row[8] == project_id]
        if matches:
            return matches
    return []


def find_sampled_before(
    ex: Executor, project_id: str, turns: Sequence[ConversationAnswer], access: KeyAccess
) -> list[Match]:
    """Return the caller's sampled choices at the first of some assistant messages with any, verbatim or as edited.

    A text that equals one choice may also be another choice with its white space trimmed, so both are returned.
    """
    for turn in turns:
        found = find_deepest_sampled(ex, project_id, [turn.node], access)
        known = {(m.call_id, m.choice) for m in found}
        alike = [
            m for m in _retold(ex, project_id, turn, access, grown=not found) if (m.call_id, m.choice) not in known
        ]
        if found or alike:
            return [*found, *alike]
    return []


def find_continued(ex: Executor, trajectory_id: str) -> list[str]:
    """Return a trajectory and those that it continues, the newest first."""
    found: list[str] = []
    home: str | None = trajectory_id
    while home is not None and home not in found:
        found.append(home)
        home = next((row[0] for row in ex.all(sql.CONTINUES, trajectory=home)), None)
    return found


def find_retold_in(
    ex: Executor, project_id: str, turn: ConversationAnswer, trajectory_ids: Collection[str], access: KeyAccess
) -> list[Match]:
    """Return the sampled choices of some trajectories that an assistant message repeats in a client's form."""
    return _retold(ex, project_id, turn, access, among=trajectory_ids)


def _retold(
    ex: Executor,
    project_id: str,
    turn: ConversationAnswer,
    access: KeyAccess,
    *,
    grown: bool = True,
    among: Collection[str] | None = None,
) -> list[Match]:
    """Return the choices sampled after exactly the same messages, which an assistant message repeats in another form.

    The form differs by white space at its ends; without such a choice, the longest that it begins with (`grown`).
    """
    if turn.before is None:
        return []
    rows = ex.all(sql.ANSWERS_TO, prompt=turn.before, access=access.key)
    own = [r for r in rows if r[8] == project_id and (among is None or r[2] in among)]
    said = [(_match(r[:8]), json.loads(r[9]), r[10]) for r in own]
    same = [m for m, message, _ in said if lineage.equals_but_space(message, turn.message)]
    if same or not grown:
        return same
    lengths = [(lineage.matched_length(message, turn.message, _stops(sampling)), m) for m, message, sampling in said]
    longest = max((length for length, _ in lengths), default=0)
    return [m for length, m in lengths if length == longest > 0]


def _stops(sampling: str) -> Sequence[str]:
    stops: Sequence[str] = json.loads(sampling).get("stop") or ()
    return stops


def _match(row: Row) -> Match:
    call_id, choice, trajectory_id, state, continued, at, *more = row
    session, confidence = more or (None, None)
    is_open, hinted = state == TrajectoryState.OPEN, confidence == Confidence.HINT
    return Match(call_id, choice, trajectory_id, is_open, bool(continued), at, session, hinted)


_DEEPEST: Final = 2  # answers that are asked for first: earlier ones may be common to many conversations


def _leaves_at(ex: Executor, trajectory_ids: Sequence[str], nodes: Sequence[bytes]) -> dict[bytes, list[Match]]:
    """Return the sampled choices of some trajectories by their node.

    It reads the rows of these nodes, and not all calls of the trajectories, unless more than `MOST_EQUAL` conversations
    are equal so far.
    """
    if not nodes or not trajectory_ids:
        return {}
    rows = ex.all(sql.LEAVES_AT, nodes=list(nodes))
    if len(rows) > sql.MOST_EQUAL:
        rows = (
            ex.all(sql.LEAVES_IN, trajectory=trajectory_ids[0], nodes=list(nodes))
            if len(trajectory_ids) == 1
            else ex.all(sql.LEAVES_AMONG, trajectories=list(trajectory_ids), nodes=list(nodes))
        )
    wanted = frozenset(trajectory_ids)
    found: dict[bytes, list[Match]] = {}
    for row in rows:
        if row[3] in wanted:
            found.setdefault(bytes(row[0]), []).append(_match(row[1:]))
    return found


def _first(matches: Mapping[bytes, list[Match]], ends: Sequence[bytes]) -> list[Match]:
    """Return the matches at the first of `ends` with any."""
    return next((matches[end] for end in ends if end in matches), [])


def find_leaf_in(ex: Executor, trajectory_id: str, ends: Sequence[bytes]) -> ParentCall | None:
    """Return the sampled choice of a trajectory, or of one that it continues, at the first of `ends` with one."""
    home: str | None = trajectory_id if ends else None
    while home is not None:
        deepest = _leaves_at(ex, [home], ends[:_DEEPEST])
        here = _first(deepest, ends) or _first(_leaves_at(ex, [home], ends[_DEEPEST:]), ends)
        if (found := decide_parent(here).match) is not None:
            return ParentCall(found.call_id, found.choice)
        home = next((row[0] for row in ex.all(sql.CONTINUES, trajectory=home)), None)
    return None


def find_exchanges(ex: Executor, project_id: str, exchange: bytes, access: KeyAccess) -> list[RecordedExchange]:
    """Return the caller's recorded answers that end in a call's last exchange, the newest first."""
    rows = ex.all(sql.SIMILAR, exchange=exchange, access=access.key)
    return [RecordedExchange(_match(row[:8]), bytes(row[9])) for row in rows if row[8] == project_id]


def conversation_texts(ex: Executor, node: bytes) -> list[str]:
    """Return the messages of the conversation up to a node, each as JSON."""
    return [row[0] for row in ex.all(sql.CONVERSATION, node=node)]


def find_session_trajectories(
    ex: Executor,
    project_id: str,
    session: str,
    group: str,
    ends: Sequence[bytes],
    told: Sequence[ConversationAnswer],
    access: KeyAccess,
) -> SessionTrajectories:
    """Return the caller's trajectories of a session, at most `MOST_RUNS + 1`, and a conversation's matches in them.

    A match is the deepest answer that the conversation repeats verbatim, or its last one in a client's form.
    """
    runs = ex.all(sql.SESSION_RUNS, project=project_id, session=session, address_group=group, access=access.key)
    ids = [row[0] for row in runs]
    open_ids = [row[0] for row in runs if row[1] == TrajectoryState.OPEN]
    found = _leaves_at(ex, ids, ends[:_DEEPEST])
    for end, turn in zip(ends, told, strict=False):
        matches = found.get(end) or (find_retold_in(ex, project_id, turn, ids, access) if ids else [])
        if matches:
            return SessionTrajectories(ids, open_ids, matches)
    earlier = _leaves_at(ex, ids, ends[_DEEPEST:])
    return SessionTrajectories(ids, open_ids, _first(found, ends) or _first(earlier, ends))


def find_answers_in(ex: Executor, trajectory_ids: Sequence[str]) -> list[lineage.RecordedAnswer]:
    """Return the answers of some trajectories, the newest first, at most `MOST_ANSWERS`."""
    rows = ex.all(sql.ANSWERS_AMONG, trajectories=list(trajectory_ids)) if trajectory_ids else ()
    return [
        lineage.RecordedAnswer(
            ParentCall(row[0], row[1]),
            row[2],
            json.loads(row[3]),
            json.loads(row[4]) if row[4] is not None else None,
            row[5],
            bytes(row[6]) if row[6] is not None else None,
        )
        for row in rows
    ]


def first_messages(ex: Executor, call_id: str) -> list[Message]:
    """Return the first messages of a call's request."""
    return [json.loads(row[0]) for row in ex.all(sql.BEGINNING, call=call_id)]


def block_hashes_of(ex: Executor, parent: ParentCall) -> bytes:
    """Return the hashes of all blocks of a sampled choice's prompt and ids; empty if they are not known."""
    calls = ex.all(sql.HASHES_UP, call=parent.call_id)
    if not calls or calls[-1][3]:  # the first call of the chain shares ids with a deleted call
        return b""
    ended = {(row[0], row[1]): row[2] or b"" for row in ex.all(sql.CHOICE_HASHES, ids=[row[0] for row in calls])}
    hashes, above = b"", b""
    for _, parent_id, parent_choice, shared, own in reversed(calls):
        if own is None:
            return b""
        if shared:
            above = hashes + ended.get((parent_id, parent_choice), b"")
        hashes = above[: (shared or 0) // BLOCK * HASH_BYTES] + own
    return hashes + ended.get((parent.call_id, parent.choice), b"")
