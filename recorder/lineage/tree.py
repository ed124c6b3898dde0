"""What shape a trajectory's calls have: the tree, its main leaf and the path to it, retries, choices nobody took.

Owns: these, as pure functions over plain facts. Refuses: look-ups and storage, and which turn a call goes on from
(`recorder.lineage.match`).

A branch is a branch; an SDK's retry is the same turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from recorder.content.turns import Parent
from recorder.states import CallState, TurnKind


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
