"""Which sampled turn a call goes on from, and what shape a trajectory's calls have: the tree, its main leaf, retries.

Owns: the decisions, as pure functions over plain facts. Refuses: look-ups and storage (`recorder.lineage.lookup`, the
writer).

The rules are those of the recorder's contract: a chain of messages that ends in a turn we sampled belongs to that
turn's trajectory, for certain where only one open trajectory holds such a turn; identical runs stay separate samples;
a branch is a branch; an SDK's retry is the same turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from recorder.content.turns import Message, Parent
from recorder.states import CallState, Confidence, TurnKind


@dataclass(frozen=True, slots=True)
class Match:
    """A sampled choice whose whole conversation equals the beginning of a new call's."""

    call_id: str
    choice: int
    trajectory_id: str
    open: bool  # its trajectory is
    continued: bool  # another call goes on from it already
    at: float  # when it was sampled
    session: str | None = None  # of its trajectory
    hinted: bool = False  # it was placed there by a hint alone


@dataclass(frozen=True, slots=True)
class Decision:
    """What the matches say: `match` is None where there is none."""

    confidence: Confidence
    match: Match | None


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call as the tree knows it."""

    id: str
    parent: Parent | None
    choices: int
    state: CallState
    turn_kind: TurnKind
    superseded: bool
    at: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call of one trajectory, among those with the same body, as the retry rule knows it."""

    call_id: str
    retry_count: int
    state: CallState
    started_at: float
    continued: bool


def issued_in(messages: Sequence[Message]) -> list[str]:
    """The tool-call ids that the last assistant turn with tool calls shows, in order; empty where there is none."""
    for message in reversed(messages):
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        if calls:
            return [c["id"] for c in calls if isinstance(c, Mapping) and isinstance(c.get("id"), str)]
    return []


def has_past(messages: Sequence[Message]) -> bool:
    """Whether a conversation holds an assistant turn."""
    return any(m.get("role") == "assistant" for m in messages)


def assistant_ends(messages: Sequence[Message], chain: Sequence[bytes], limit: int = 64) -> list[bytes]:
    """The nodes of the assistant turns of a conversation, the last first, at most `limit` of them."""
    nodes = (node for message, node in zip(messages, chain, strict=True) if message.get("role") == "assistant")
    return list(nodes)[::-1][:limit]


def last_answers(messages: Sequence[Message], ends: Sequence[bytes]) -> Sequence[bytes]:
    """Of the ends of a conversation, the one that it goes on from; two where it closes with the beginning of an answer.

    An earlier turn that we sampled proves nothing where a later one is not ours: the history was edited or made up.
    """
    return ends[: 2 if messages[-1].get("role") == "assistant" else 1]


def decide(matches: Iterable[Match]) -> Decision:
    """Whose turn a call goes on from, given every sampled choice that equals its beginning.

    Exact where one trajectory is in question: the only open one, or, where none is open, the only one. Else ambiguous:
    the newest turn that nothing goes on from yet, since runs that are equal so far may be dealt out in any order.
    """
    found = list(matches)
    if not found:
        return Decision(Confidence.NEW, None)
    candidates = [m for m in found if m.open] or found
    best = min(candidates, key=lambda m: (m.continued, -m.at, m.call_id, m.choice))
    one = len({m.trajectory_id for m in candidates}) == 1
    return Decision(Confidence.EXACT if one else Confidence.AMBIGUOUS, best)


def settle(attempts: Iterable[Attempt]) -> dict[str, str]:
    """Which attempts are superseded, and by which call: an SDK's retry and what it retries are one turn.

    The turn is the attempt that was gone on with (each, where several were), else the last one, a complete one first.
    Equal requests that no retry answers for stay separate samples.
    """
    superseded: dict[str, str] = {}
    for turn in _turns(attempts):
        continued = [a for a in turn if a.continued]
        last = max(continued or turn, key=lambda a: (a.state is CallState.COMPLETE, *_age(a)))
        superseded |= {a.call_id: last.call_id for a in turn if a is not last and not a.continued}
    return superseded


def _age(attempt: Attempt) -> tuple[int, float, str]:
    return attempt.retry_count, attempt.started_at, attempt.call_id


def _turns(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Attempts, put together where a retry answers for an earlier one.

    A retry answers for the attempt with the highest lower count that no other retry answers for; among equals for one
    that did not complete, then for the newest.
    """
    turns: list[list[Attempt]] = []
    for attempt in sorted(attempts, key=_age):
        before = [turn for turn in turns if turn[-1].retry_count < attempt.retry_count]
        if not before:
            turns.append([attempt])
            continue
        last = max(before, key=lambda t: (t[-1].retry_count, t[-1].state is not CallState.COMPLETE, *_age(t[-1])))
        last.append(attempt)
    return turns


def continued_choices(calls: Iterable[CallNode]) -> set[Parent]:
    """The choices that some call goes on from."""
    return {c.parent for c in calls if c.parent is not None}


def main_leaf(calls: Sequence[CallNode]) -> Parent | None:
    """The last sampled choice of the main path: the judge sees the path to it. None where no call is complete."""
    main = [
        c
        for c in calls
        if c.turn_kind is TurnKind.MAIN and c.state is CallState.COMPLETE and not c.superseded and c.choices
    ]
    return Parent(max(main, key=lambda c: (c.at, c.id)).id, 0) if main else None


def path_to(calls: Mapping[str, CallNode], leaf: Parent | None) -> list[Parent]:
    """The choices from the root to `leaf`, as far as the calls are known."""
    path: list[Parent] = []
    while leaf is not None and leaf.call_id in calls:
        path.append(leaf)
        leaf = calls[leaf.call_id].parent
    return path[::-1]


def not_selected(calls: Iterable[CallNode], path: Collection[Parent]) -> set[Parent]:
    """The choices of n>1 calls that nobody went on with and that do not end the main path."""
    nodes = list(calls)
    chosen = continued_choices(nodes) | set(path)
    every = (Parent(c.id, index) for c in nodes if c.choices > 1 for index in range(c.choices))
    return {choice for choice in every if choice not in chosen}


def split_choices(calls: Sequence[CallNode]) -> list[int]:
    """The choices of a first call with n>1 that was never continued: each is a trajectory of one group.

    Returns the choices beyond the first, which stays with the trajectory; empty where the rule does not apply.
    """
    kept = [c for c in calls if not c.superseded and c.turn_kind is TurnKind.MAIN]
    if len(kept) != 1 or kept[0].parent is not None or kept[0].state is not CallState.COMPLETE:
        return []
    return list(range(1, kept[0].choices))
