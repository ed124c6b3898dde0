"""Decide which recorded answer a call continues, and what its conversation shares with calls that it does not continue.

Owns: that decision from the ends of a conversation and the ids that Hone issued; answers that recur behind another
history; texts of a trajectory that a new conversation quotes. Pure functions. Refuses: queries
(`recorder.capture.lookups.recorded_calls`), choosing a trajectory (`recorder.capture.lookups.client_sessions`), and the
shape of a trajectory's calls (`recorder.messages.call_tree`).

A chain of messages that ends in an answer that Hone sampled belongs to that answer's trajectory. This is certain if
only one open trajectory has such an answer. Identical trajectories stay separate samples. Behind another history an
answer counts only together with the message before it, because "OK" alone occurs in any trajectory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from recorder.base.json_limits import parse_json_text
from recorder.messages.calls import Message, ParentCall
from recorder.messages.content_hashes import canonical_json, canonical_message
from recorder.messages.plain_text import message_text, text_parts
from recorder.messages.text_masking import mask_message
from recorder.states import Confidence

MIN_QUOTED_CHARS: Final = 32  # a shorter text may occur in two conversations by chance
_BLOCK_ENDS: Final = "<`"  # the first characters of closing tags and code fences
MOST_LOOKED_AT: Final = 16  # assistant messages of a history, from its end


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer of a trajectory, with the message that it answered (`asked`)."""

    choice: ParentCall
    trajectory_id: str
    answer: Message
    asked: Message | None
    finish_reason: str | None
    tools: bytes | None  # the blob id of its call's tools


def matching_exchanges(messages: Sequence[Message], said: Iterable[RecordedAnswer]) -> list[RecordedAnswer]:
    """Return the recorded answers that occur in a conversation, at the last position of any; empty if none occurs."""
    known: dict[tuple[bytes, bytes], list[RecordedAnswer]] = {}
    for one in said:
        if one.asked is not None:
            known.setdefault((form_without_ids(one.asked), form_without_ids(one.answer)), []).append(one)
    if not known:
        return []
    for at in islice(_answers(messages, first=1), MOST_LOOKED_AT):
        found = known.get((form_without_ids(messages[at - 1]), form_without_ids(messages[at])))
        if found:
            return found
    return []


def form_without_ids(message: Message) -> bytes:
    """A message's canonical form without tool-call ids: some agents renumber them when they repeat the message."""
    form = canonical_message(message)
    form.pop("tool_call_id", None)
    calls = form.get("tool_calls")
    if isinstance(calls, list):
        form["tool_calls"] = [_without_id(call) for call in calls]
    return canonical_json(form)


def _without_id(call: Any) -> Any:
    return {name: value for name, value in call.items() if name != "id"} if isinstance(call, Mapping) else call


def equals_but_space(said: Message, told: Message) -> bool:
    """Whether `told` equals `said`, or `said` with the white space at the ends of its text trimmed."""
    text = message_text(said)
    return message_text(told) in (text, *_trimmed(text)) and _rest(said) == _rest(told)


def matched_length(said: Message, told: Message, stops: Sequence[str] = ()) -> int:
    """Return how many characters of a repeated message are the sampled text; 0 if it does not begin with all of it.

    Agents append their stop string, and notes. The sampled text must be followed by a new line, by one of the call's
    stop strings or by the end of a code block; otherwise it is another text.
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
    """Whether a user message contains these words as whole words. Tells what an auxiliary call is about."""
    return bool(words) and any(
        _has_words(words, text) for m in messages if m.get("role") == "user" for text in text_parts(m)
    )


def _has_words(words: str, text: str) -> bool:
    at = text.find(words)
    if at < 0:
        return False
    before, behind = text[:at][-1:], text[at + len(words) :][:1]
    return not (before.isalnum() and words[0].isalnum()) and not (behind.isalnum() and words[-1].isalnum())


def system_head(messages: Iterable[Message]) -> bytes:
    """Return the system messages at the beginning of a conversation, in canonical form."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        found.append(canonical_message(message))
    return canonical_json(found)


def masked_system(messages: Iterable[Message]) -> bytes:
    """Return the system messages of a conversation, without what varies in them: numbers, dates, ids."""
    return canonical_json([mask_message(canonical_message(message)) for message in system_messages(messages)])


def system_messages(messages: Iterable[Message]) -> list[Message]:
    """Return the system messages of a conversation, wherever they are."""
    return [message for message in messages if message.get("role") in ("system", "developer")]


def asked_of_tools(answer: Message) -> Iterator[str]:
    """Yield every text in the arguments of an answer's tool calls."""
    for call in answer.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, str):
            try:
                yield from _strings(parse_json_text(arguments))
            except (ValueError, RecursionError):
                continue


def _strings(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            pending += reversed(list(one.values()))
        elif isinstance(one, list):
            pending += reversed(one)


MOST_READ_CHARS: Final = 16_384  # of an assistant's text, from its end, that are searched for ids
MOST_WRITTEN: Final = 64  # ids in one text
MOST_SEARCHED_CHARS: Final = 50_000_000  # in which ids are looked for, each by itself: some 20 ms
# Random ids as vLLM's tool-call parsers and OpenAI make them. Names and numbers that a client or a model can count up
# never match.
_WRITTEN_ID: Final = re.compile(
    r"(?<![\w-])(?:(?:chatcmpl-tool-|call_(?:\d{1,4}_)?)[0-9a-f]{16}(?:[0-9a-f]{16})?|call_[0-9A-Za-z]{24})(?![\w-])",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ConversationAnswer:
    """An assistant message in a conversation. `node` identifies the history with it, `before` the history before it."""

    node: bytes
    before: bytes | None  # None: the conversation begins with it
    message: Message


@dataclass(frozen=True, slots=True)
class Match:
    """A sampled choice that a new call's conversation may continue."""

    call_id: str
    choice: int
    trajectory_id: str
    open: bool  # whether its trajectory is open
    continued: bool  # another call continues it already
    at: float  # when it was sampled, in unix seconds
    session: str | None = None  # of its trajectory
    hinted: bool = False  # only a hint assigned its call to the trajectory


@dataclass(frozen=True, slots=True)
class Decision:
    """The parent of a call. `match`: None if there is no match."""

    confidence: Confidence
    match: Match | None


def issued_tool_call_ids(messages: Sequence[Message]) -> list[str]:
    """Return the tool-call ids of the last assistant message with tool calls, in order; empty if there is none.

    If no message has tool calls, the ids that its text contains (`written_ids`).
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
    """Return the random ids in the last assistant text with any: some agents write tool calls as text (smolagents).

    An id that also occurs earlier, in text of users, tools or the system, may have been copied and is no evidence.
    """
    for at in islice(_answers(messages), MOST_LOOKED_AT):
        found = dict.fromkeys(_WRITTEN_ID.findall(message_text(messages[at])[-MOST_READ_CHARS:]))
        if found:
            heard = [text for m in messages[:at] if m.get("role") != "assistant" for text in text_parts(m)]
            most = min(MOST_WRITTEN, MOST_SEARCHED_CHARS // (1 + sum(map(len, heard))))
            return [id_ for id_ in list(found)[:most] if not any(id_ in text for text in heard)]
    return []


def has_answer(messages: Sequence[Message]) -> bool:
    """Whether a conversation has an assistant message."""
    for message in messages:  # noqa: SIM110 - no generator: it is asked three times a call
        if message.get("role") == "assistant":
            return True
    return False


def answer_nodes(messages: Sequence[Message], chain: Sequence[bytes], limit: int = 64) -> list[bytes]:
    """Return the nodes of a conversation's assistant messages, the last first, at most `limit`."""
    return [chain[at] for at in islice(_answers(messages), limit)]


def last_answers(messages: Sequence[Message], chain: Sequence[bytes]) -> list[ConversationAnswer]:
    """Return the assistant message that a conversation continues; two if it ends with the beginning of an answer.

    An earlier message that Hone sampled is no evidence if a later one is not Hone's: the history may be edited.
    """
    kept = islice(_answers(messages), 2 if messages[-1].get("role") == "assistant" else 1)
    return [ConversationAnswer(chain[at], chain[at - 1] if at else None, messages[at]) for at in kept]


def _answers(messages: Sequence[Message], first: int = 0) -> Iterator[int]:
    """Yield the indexes of a conversation's assistant messages, the last first, down to `first`."""
    return (at for at in range(len(messages) - 1, first - 1, -1) if messages[at].get("role") == "assistant")


def decide_parent(matches: Iterable[Match]) -> Decision:
    """Return the answer that a call continues, given every sampled choice that matches its beginning.

    Exact if only one trajectory is possible: the only open one or, if none is open, the only one. Otherwise ambiguous:
    the newest answer that no call continues yet, since trajectories that are equal so far are interchangeable.
    """
    found = list(matches)
    if not found:
        return Decision(Confidence.NEW, None)
    candidates = [m for m in found if m.open] or found
    best = min(candidates, key=lambda m: (m.continued, -m.at, m.call_id, m.choice))
    one = len({m.trajectory_id for m in candidates}) == 1
    return Decision(Confidence.EXACT if one else Confidence.AMBIGUOUS, best)
