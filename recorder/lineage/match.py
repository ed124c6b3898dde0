"""Which sampled turn a call goes on from: its ends, the ids that we issued, and the decision.

Owns: that, as pure functions over plain facts. Refuses: look-ups and storage (`recorder.lineage.lookup`, the writer),
and what shape the calls of a trajectory have (`recorder.lineage.tree`).

The rules are those of the recorder's contract: a chain of messages that ends in a turn we sampled belongs to that
turn's trajectory, for certain where only one open trajectory holds such a turn; identical runs stay separate samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recorder.content.turns import Message
from recorder.states import Confidence


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
