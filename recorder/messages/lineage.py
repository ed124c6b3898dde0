"""What a conversation shares with recorded calls that it does not continue word by word. Pure.

Owns: answers that come back behind another history, and texts of a trajectory that a new conversation quotes. Refuses:
deciding where a call belongs (`recorder.capture.lookups.client_sessions`), and the exact chain of messages
(`recorder.messages.lineage`).

An answer counts together with what it answered, because "OK" alone comes back in any trajectory.

Decide which sampled answer a call continues, from the ends of its conversation and the ids that Hone issued.

Owns: that decision, as pure functions over plain facts. Refuses: queries and storage
(`recorder.capture.lookups.recorded_calls`), and the shape of a trajectory's calls (`recorder.messages.call_tree`).

The rules are those of the recorder's contract. A chain of messages that ends in an answer that Hone sampled belongs to
that answer's trajectory; this is certain if only one open trajectory has such an answer. Identical trajectories stay
separate samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recorder.messages.calls import Message, ParentCall
from recorder.messages.content_hashes import canonical_json, canonical_message
from recorder.messages.plain_text import message_text, text_parts
from recorder.states import Confidence

MIN_QUOTED_CHARS: Final = 32  # a shorter text may occur in two conversations by chance
_BLOCK_ENDS: Final = "<`"  # what closing tags and fences of code begin with
MOST_LOOKED_AT: Final = 16  # assistant messages of a history, from its end


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer of a trajectory, with what it answered."""

    choice: ParentCall
    trajectory_id: str
    answer: Message
    asked: Message | None
    finish_reason: str | None
    tools: bytes | None  # the blob of the tools that its call had


def matching_exchanges(messages: Sequence[Message], said: Iterable[RecordedAnswer]) -> list[RecordedAnswer]:
    """The recorded answers that occur in a conversation, at the last position where any does; empty if none does."""
    known: dict[tuple[bytes, bytes], list[RecordedAnswer]] = {}
    for one in said:
        if one.asked is not None:
            known.setdefault((form_without_ids(one.asked), form_without_ids(one.answer)), []).append(one)
    if not known:
        return []
    turns = [at for at in range(len(messages) - 1, 0, -1) if messages[at].get("role") == "assistant"]
    for at in turns[:MOST_LOOKED_AT]:
        found = known.get((form_without_ids(messages[at - 1]), form_without_ids(messages[at])))
        if found:
            return found
    return []


def form_without_ids(message: Message) -> bytes:
    """A message without the ids of tool calls: some agents renumber their calls when they send them back."""
    form = canonical_message(message)
    form.pop("tool_call_id", None)
    calls = form.get("tool_calls")
    if isinstance(calls, list):
        form["tool_calls"] = [_without_id(call) for call in calls]
    return canonical_json(form)


def _without_id(call: Any) -> Any:
    return {name: value for name, value in call.items() if name != "id"} if isinstance(call, Mapping) else call


def equals_but_space(said: Message, told: Message) -> bool:
    """Whether a message is another with the white space at the ends of its text trimmed, or left."""
    text = message_text(said)
    return message_text(told) in (text, *_trimmed(text)) and _rest(said) == _rest(told)


def matched_length(said: Message, told: Message, stops: Sequence[str] = ()) -> int:
    """How many characters of a repeated message are the sampled text, if it begins with all of that; 0 if it does not.

    Agents append their stop string, and notes. After the sampled text comes a new line, one of the call's stop strings
    or the end of a code block: a text that continues in another way is another text.
    """
    text, whole = message_text(told), message_text(said)
    if not whole.strip():
        return 0
    fits = [len(start) for start in (whole, *_trimmed(whole)) if text.startswith(start)]
    length = max((length for length in fits if _ends_there(text, length, stops)), default=0)
    return length if length and _rest(said) == _rest(told) else 0


def _trimmed(text: str) -> tuple[str, str, str]:
    return text.rstrip(), text.lstrip(), text.strip()


def _ends_there(text: str, length: int, stops: Sequence[str]) -> bool:
    seam = text[length - 1 : length + 1]
    if len(seam) < 2 or "\n" in seam or seam[1] in _BLOCK_ENDS:
        return True
    return any(text.startswith(end, length) for stop in stops if (end := stop.strip()))


def _rest(message: Message) -> bytes:
    """A message without its text."""
    form = canonical_message(message)
    form.pop("content", None)
    return canonical_json(form)


def is_quoted(text: str, messages: Iterable[Message]) -> bool:
    """Whether a text, long enough to exclude chance, occurs in some message."""
    wanted = text.strip()
    return len(wanted) >= MIN_QUOTED_CHARS and any(wanted in said for m in messages for said in text_parts(m))


def first_user_text(messages: Iterable[Message]) -> str:
    """The first user text of a conversation, after its system messages; "" if there is none."""
    return next((message_text(m).strip() for m in messages if m.get("role") == "user"), "")


def is_about(words: str, messages: Iterable[Message]) -> bool:
    """Whether some user message contains these words, and not inside longer words: what an auxiliary call is about."""
    return bool(words) and any(
        _stands_in(words, text) for m in messages if m.get("role") == "user" for text in text_parts(m)
    )


def _stands_in(words: str, text: str) -> bool:
    at = text.find(words)
    if at < 0:
        return False
    before, behind = text[:at][-1:], text[at + len(words) :][:1]
    return not (before.isalnum() and words[0].isalnum()) and not (behind.isalnum() and words[-1].isalnum())


def system_head(messages: Iterable[Message]) -> bytes:
    """The system messages that a conversation begins with, in their canonical form."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        found.append(canonical_message(message))
    return canonical_json(found)


def asked_of_tools(answer: Message) -> Iterator[str]:
    """Every text in the arguments of an answer's tool calls."""
    for call in answer.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, str):
            try:
                yield from _strings(json.loads(arguments))
            except (ValueError, RecursionError):
                continue


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


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
    for at in turns[:MOST_LOOKED_AT]:
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
