"""Decide which sampled answer a call continues, from the ends of its conversation and the ids that Hone issued.

Owns: that decision, as pure functions over plain facts. Refuses: queries and storage
(`recorder.capture.lookups.recorded_calls`), and the shape of a trajectory's calls (`recorder.messages.call_tree`).

The rules are those of the recorder's contract. A chain of messages that ends in an answer that Hone sampled belongs to
that answer's trajectory; this is certain if only one open trajectory has such an answer. Identical trajectories stay
separate samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.messages import partial_match
from recorder.messages.calls import Message
from recorder.messages.plain_text import message_text, text_parts
from recorder.states import Confidence

MOST_READ_CHARS: Final = 16_384  # of an assistant's text, from its end, in which ids are looked for
MOST_WRITTEN: Final = 64  # ids in one text
# Random ids as vLLM's parsers of tool calls make them. Names and numbers that a client or a model may count up are not.
_WRITTEN_ID: Final = re.compile(
    r"(?<![\w-])(?:chatcmpl-tool-|call_(?:\d{1,4}_)?)[0-9a-f]{16}(?:[0-9a-f]{16})?(?![\w-])", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ConversationAnswer:
    """An assistant message as a conversation repeats it. `node` identifies all up to it, `before` all before it."""

    node: bytes
    before: bytes | None  # None: the conversation begins with it
    message: Message


@dataclass(frozen=True, slots=True)
class Match:
    """A sampled choice that a new call's conversation may continue."""

    call_id: str
    choice: int
    trajectory_id: str
    open: bool  # its trajectory is
    continued: bool  # another call continues it already
    at: float  # when it was sampled
    session: str | None = None  # of its trajectory
    hinted: bool = False  # it was placed there by a hint alone


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the matches: `match` is None if there is none."""

    confidence: Confidence
    match: Match | None


def issued_tool_call_ids(messages: Sequence[Message]) -> list[str]:
    """The tool-call ids of the last assistant message with tool calls, in order; empty if there is none.

    If no message has tool calls, those that the last of its texts spells (`written_ids`).
    """
    for message in reversed(messages):
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        if calls:
            return [c["id"] for c in calls if isinstance(c, Mapping) and isinstance(c.get("id"), str)]
    return written_ids(messages)


def has_tool_calls(messages: Sequence[Message]) -> bool:
    """Whether an assistant message of a conversation has tool calls, not only text about them."""
    return any(m.get("tool_calls") for m in messages if m.get("role") == "assistant")


def written_ids(messages: Sequence[Message]) -> list[str]:
    """The random ids in the last assistant text that has any: some agents write their tool calls as text (smolagents).

    An id that occurs before it, in text of users, tools or the system, may have been copied and is no evidence.
    """
    turns = [at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == "assistant"]
    for at in turns[: partial_match.MOST_LOOKED_AT]:
        found = dict.fromkeys(_WRITTEN_ID.findall(message_text(messages[at])[-MOST_READ_CHARS:]))
        if found:
            heard = [text for m in messages[:at] if m.get("role") != "assistant" for text in text_parts(m)]
            return [id_ for id_ in list(found)[:MOST_WRITTEN] if not any(id_ in text for text in heard)]
    return []


def has_answer(messages: Sequence[Message]) -> bool:
    """Whether a conversation has an assistant message."""
    return any(m.get("role") == "assistant" for m in messages)


def answer_nodes(messages: Sequence[Message], chain: Sequence[bytes], limit: int = 64) -> list[bytes]:
    """The nodes of the assistant messages of a conversation, the last first, at most `limit` of them."""
    nodes = (node for message, node in zip(messages, chain, strict=True) if message.get("role") == "assistant")
    return list(nodes)[::-1][:limit]


def last_answers(messages: Sequence[Message], chain: Sequence[bytes]) -> list[ConversationAnswer]:
    """The assistant message that a conversation continues; two if it closes with the beginning of an answer.

    An earlier message that Hone sampled is no evidence if a later one is not Hone's: the history was edited or made up.
    """
    turns = [at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == "assistant"]
    kept = turns[: 2 if messages[-1].get("role") == "assistant" else 1]
    return [ConversationAnswer(chain[at], chain[at - 1] if at else None, messages[at]) for at in kept]


def decide_parent(matches: Iterable[Match]) -> Decision:
    """The answer that a call continues, given every sampled choice that equals its beginning.

    Exact if only one trajectory is possible: the only open one or, if none is open, the only one. Otherwise ambiguous:
    the newest answer that no call continues yet, since trajectories that are equal so far may be assigned in any order.
    """
    found = list(matches)
    if not found:
        return Decision(Confidence.NEW, None)
    candidates = [m for m in found if m.open] or found
    best = min(candidates, key=lambda m: (m.continued, -m.at, m.call_id, m.choice))
    one = len({m.trajectory_id for m in candidates}) == 1
    return Decision(Confidence.EXACT if one else Confidence.AMBIGUOUS, best)
