"""Redaction: matches of `recorder.redact` are removed from a call before the recorder processes it.

Owns: walking a call's parts, the visible marks, and what else is removed with a match. Refuses: patterns
(`recorder.base.patterns`).

Rows, node ids, hashes and groups are made of the redacted call and reveal nothing of the original. A node id made of
the original text would: it is keyed, but the key lies in the same store, and whoever has both can try every phone
number. The price: two trajectories that differ in redacted text alone look equal, and only ids that Hone issued tell
them apart.

Token ids spell the text. So a call with a match keeps neither ids nor logprobs, whichever part matched, and its choices
are not trainable. The same holds for calls that continue it, because their prompt may hold sampled text that the client
never sent (reasoning that Hone kept). Ids without text cannot be checked and are not kept either.

A conversation that Hone itself assembles (`previous_response_id`) continues from the stored text, marks included.

Not redacted: text inside images or audio, text in another encoding (base64, percent signs), and a match within which a
broken answer ends. Addresses (the ids of trajectories and groups) are stored as they are, because agents need them. A
campaign's scenarios and its agents' results are the operator's own and are not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from recorder.base.lru import Lru
from recorder.base.patterns import Pattern, parse_pattern
from recorder.messages import content_hashes
from recorder.messages.calls import Message, RecordedCall, RecordedRequest, RedactedParts, SampledChoice

# Keys that carry the form of a message. A pattern that happens to match one must not take the message apart.
_FORM: Final = frozenset(
    {"role", "content", "type", "text", "name", "id", "tool_call_id", "tool_calls", "function", "arguments", "index"}
)
_WORDS: Final = frozenset({"role", "type"})  # and whose values do
# Fields of a body that no model ever sees: a match there is taken out, and costs the call's tokens nothing.
_UNSEEN: Final = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key"})
_SPELLING: Final = frozenset(
    {"logprobs", "top_logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "tokens", "text_offset"}
)
# A prompt that a client gave as token ids is recorded as their list: their text cannot be checked.
_IDS: Final = re.compile(r"\[[0-9]+(?:,[0-9]+)+\]")
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class _RedactedMessages:
    """Messages as they came, and as they are kept."""

    given: Sequence[Message]
    kept: Sequence[Message]
    hits: frozenset[int]


class Redactor:
    """The patterns in force. Without any it hands back what it was given."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._patterns: tuple[Pattern, ...] = tuple(map(parse_pattern, entries))
        self._seen: Lru[int, _RedactedMessages] = Lru(_REMEMBERED)
        self._requests: Lru[int, tuple[RecordedRequest, RecordedRequest]] = Lru(_REMEMBERED)
        self._redacted: Lru[str, bool] = Lru(20_000)  # calls of this process that had a match

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def text(self, text: str) -> str:
        """`text` with a mark in place of each match; JSON in it is matched behind its escapes.

        JSON with escapes is serialized again if anything matched, because its spelling would reveal how a secret was
        escaped.
        """
        plain = self._marked(text)
        if "\\" not in plain or plain.lstrip()[:1] not in ("{", "[", '"'):
            return plain
        try:
            inner = json.loads(plain)
        except (ValueError, RecursionError):
            return plain
        kept = self.value(inner)
        return plain if kept == inner and plain == text else json.dumps(kept, ensure_ascii=False)

    def value(self, value: Any) -> Any:
        """A JSON value with a mark in place of each match: in texts, numbers and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._key(k): v if _is_word(k, v) else self.value(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = str(value)
            marked = self._marked(shown)
            return value if marked == shown else marked
        return value

    def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Messages as they are kept. The same list gives the same list, which is what `Memory` knows a chain by."""
        return self._look(messages).kept if self._patterns else messages

    def request(self, request: RecordedRequest) -> RecordedRequest:
        """A request as it is kept."""
        if not self._patterns:
            return request
        known = self._requests.get(id(request))
        if known is None or known[0] is not request:
            known = (request, self._request(request))
            self._requests.put(id(request), known)
        return known[1]

    def _request(self, request: RecordedRequest) -> RecordedRequest:
        tools = self.value(request.tools) if request.tools is not None else None
        form = self.value(request.response_format) if request.response_format is not None else None
        kept = replace(
            request,
            messages=self.messages(request.messages),
            tools=tools,
            response_format=form,
            rest=self.value(request.rest),
            sampling=replace(request.sampling, stop=self.value(request.sampling.stop)),
        )
        return replace(kept, body_hash=_body_hash(kept))

    def turn(self, turn: RecordedCall) -> RecordedCall:
        """A call as it is kept. Its `redacted` says what was taken out; None where nothing was."""
        if not self._patterns:
            return turn
        request = self.request(turn.request)
        messages = self._look(turn.request.messages).hits
        choices = [replace(c, message=self._message(c.message)) for c in turn.choices]
        sampled = frozenset(k.index for k, c in zip(choices, turn.choices, strict=True) if k.message != c.message)
        parent = turn.attribution.parent
        touched = (
            messages
            or sampled
            or _seen_parts(request) != _seen_parts(turn.request)
            or (parent is not None and parent.call_id in self._redacted)
        )
        kept = replace(
            turn,
            address=replace(turn.address, tags=self.value(turn.address.tags)),
            request=request,
            choices=choices,
            error=self.text(turn.error) if turn.error is not None else None,
            response_meta=_strings(self, turn.response_meta),
            issued_ids=[(self.text(id_), kind, choice) for id_, kind, choice in turn.issued_ids],
        )
        if touched:
            self._redacted.put(turn.call_id, True)
            kept = replace(
                kept, redacted=RedactedParts(messages, sampled), response_meta=_not_spelled_out(kept.response_meta)
            )
        return _without_ids(kept, everywhere=bool(touched))

    def _look(self, messages: Sequence[Message]) -> _RedactedMessages:
        known = self._seen.get(id(messages))
        if known is not None and known.given is messages:  # the entry holds the list, so its id is not another's
            return known
        kept = [self._message(m) or {} for m in messages]
        hits = frozenset(at for at, (a, b) in enumerate(zip(kept, messages, strict=True)) if a != b)
        seen = _RedactedMessages(messages, kept, hits)
        self._seen.put(id(messages), seen)
        return seen

    def _message(self, message: Message | None) -> Message | None:
        if message is None:
            return None
        content = message.get("content")
        if isinstance(content, str) and content[:1] == "[" and _IDS.fullmatch(content):
            return {**self.value({**message, "content": None}), "content": "[redacted:token_ids]"}
        kept: Message = self.value(message)
        return kept

    def _key(self, key: Any) -> Any:
        return self._marked(key) if isinstance(key, str) and key not in _FORM else key

    def _marked(self, text: str) -> str:
        spans = sorted((start, end, p.name) for p in self._patterns for start, end in p.spans(text))
        if not spans:
            return text
        parts, at = [], 0
        for start, end, name in spans:
            if start >= at:
                parts += [text[at:start], f"[redacted:{name}]"]
            at = max(at, end)  # what two patterns share is one mark
        return "".join((*parts, text[at:]))


def _is_word(key: Any, value: Any) -> bool:
    return key in _WORDS and isinstance(value, str) and value.isascii() and len(value) <= 32 and value.isidentifier()


def _strings(redaction: Redactor, value: Any) -> Any:
    """As `value`, but numbers stay: those of an answer are times and counts of the engine's own."""
    if isinstance(value, str):
        return redaction.text(value)
    if isinstance(value, Mapping):
        return {k: _strings(redaction, v) for k, v in value.items()}
    return [_strings(redaction, v) for v in value] if isinstance(value, list | tuple) else value


def _not_spelled_out(value: Any) -> Any:
    """An answer's fields besides its messages, without those that spell the messages token by token."""
    if isinstance(value, Mapping):
        return {k: _not_spelled_out(v) for k, v in value.items() if k not in _SPELLING}
    return [_not_spelled_out(v) for v in value] if isinstance(value, list | tuple) else value


def _seen_parts(request: RecordedRequest) -> tuple[Any, ...]:
    """All that a model may see of a request, but its messages."""
    return (
        list(request.tools) if request.tools is not None else None,
        request.response_format,
        {k: v for k, v in request.rest.items() if k not in _UNSEEN},
        request.sampling.stop,
    )


def _body_hash(kept: RecordedRequest) -> bytes:
    """What a retry is recognised by. The hash of the body itself could be tried out."""
    whole = [kept.model, kept.endpoint, list(kept.messages), kept.tools, kept.response_format, kept.rest]
    return blake2b(content_hashes.canonical_json(whole), digest_size=16).digest()


def _without_ids(turn: RecordedCall, *, everywhere: bool) -> RecordedCall:
    """`turn` without the token ids of redacted parts and of parts that have no text to check."""
    unseen = everywhere or not turn.request.messages
    choices = [_blank(c) if everywhere or c.message is None else c for c in turn.choices]
    return replace(turn, choices=choices, prompt_token_ids=None if unseen else turn.prompt_token_ids)


def _blank(choice: SampledChoice) -> SampledChoice:
    return replace(choice, token_ids=None, logprobs=None)
