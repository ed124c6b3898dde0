"""Redaction: matches of `recorder.redact` are removed from a call before the recorder processes it.

Owns: walking a call's parts, the visible marks, and what else is removed with a match. Refuses: patterns
(`recorder.base.patterns`).

Rows, node ids, hashes and groups are made from the redacted call and reveal nothing of the original. A node id of the
original text would: its key is in the same store, so anyone with a copy of the store could try every phone number. So
two trajectories that differ only in redacted text look equal, and only ids that Hone issued distinguish them.

Token ids reveal the text. So a call with a match, in whichever part, is stored without ids and logprobs, and its
choices are not trainable. The same holds for calls that continue it, because their prompt may contain sampled text that
the client never sent (stored reasoning). Ids without text cannot be checked and are not stored either.

A conversation that Hone itself assembles (`previous_response_id`) continues from the stored text, with its marks.

Not redacted: text inside images or audio, text in another encoding (base64, percent-encoding), and a match that a
broken answer cuts off. Addresses (the ids of trajectories and groups) are stored unchanged, because agents need them. A
campaign's scenarios and its agents' results belong to the operator and are not checked.
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

# Keys that define the form of a message. A pattern that matches one by chance must not break the message.
_FORM: Final = frozenset(
    {"role", "content", "type", "text", "name", "id", "tool_call_id", "tool_calls", "function", "arguments", "index"}
)
_WORDS: Final = frozenset({"role", "type"})  # keys whose values define the form too
# Fields of a body that no model sees: a match there is redacted, and the call keeps its tokens.
_UNSEEN: Final = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key"})
_SPELLING: Final = frozenset(
    {"logprobs", "top_logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "tokens", "text_offset"}
)
# A prompt that a client gave as token ids is recorded as a list of ids, whose text cannot be checked.
_IDS: Final = re.compile(r"\[[0-9]+(?:,[0-9]+)+\]")
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class _RedactedMessages:
    """Messages as the client sent them (`given`) and as they are stored (`kept`)."""

    given: Sequence[Message]
    kept: Sequence[Message]
    hits: frozenset[int]


class Redactor:
    """Redacts by the configured patterns. Without patterns it returns its input."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._patterns: tuple[Pattern, ...] = tuple(map(parse_pattern, entries))
        self._seen: Lru[int, _RedactedMessages] = Lru(_REMEMBERED)
        self._requests: Lru[int, tuple[RecordedRequest, RecordedRequest]] = Lru(_REMEMBERED)
        self._redacted: Lru[str, bool] = Lru(20_000)  # calls of this process that had a match

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def text(self, text: str) -> str:
        """Return `text` with a mark in place of each match; JSON with escapes is decoded before matching.

        If anything matched, such JSON is serialized again, because the escapes would reveal parts of a secret.
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
        """Return a JSON value with a mark in place of each match, in texts, numbers and keys."""
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
        """Return messages as they are stored. The same list returns the same list, by which caches identify a chain."""
        return self._look(messages).kept if self._patterns else messages

    def request(self, request: RecordedRequest) -> RecordedRequest:
        """Return a request as it is stored."""
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
        """Return a call as it is stored. Its `redacted` says where text was redacted; None: nowhere."""
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
        if known is not None and known.given is messages:  # the entry keeps the list alive, so its id is not reused
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
            at = max(at, end)  # overlapping matches become one mark
        return "".join((*parts, text[at:]))


def _is_word(key: Any, value: Any) -> bool:
    return key in _WORDS and isinstance(value, str) and value.isascii() and len(value) <= 32 and value.isidentifier()


def _strings(redaction: Redactor, value: Any) -> Any:
    """As `value`, but numbers stay: those of an answer are the engine's times and counts."""
    if isinstance(value, str):
        return redaction.text(value)
    if isinstance(value, Mapping):
        return {k: _strings(redaction, v) for k, v in value.items()}
    return [_strings(redaction, v) for v in value] if isinstance(value, list | tuple) else value


def _not_spelled_out(value: Any) -> Any:
    """Return an answer's fields besides its messages, without those that contain the messages token by token."""
    if isinstance(value, Mapping):
        return {k: _not_spelled_out(v) for k, v in value.items() if k not in _SPELLING}
    return [_not_spelled_out(v) for v in value] if isinstance(value, list | tuple) else value


def _seen_parts(request: RecordedRequest) -> tuple[Any, ...]:
    """Return everything of a request that a model may see, except its messages."""
    return (
        list(request.tools) if request.tools is not None else None,
        request.response_format,
        {k: v for k, v in request.rest.items() if k not in _UNSEEN},
        request.sampling.stop,
    )


def _body_hash(kept: RecordedRequest) -> bytes:
    """Return a hash of the redacted body, by which retries are recognized. The original's hash could be guessed."""
    whole = [kept.model, kept.endpoint, list(kept.messages), kept.tools, kept.response_format, kept.rest]
    return blake2b(content_hashes.canonical_json(whole), digest_size=16).digest()


def _without_ids(turn: RecordedCall, *, everywhere: bool) -> RecordedCall:
    """Return `turn` without the token ids of redacted parts and of parts without text to check."""
    unseen = everywhere or not turn.request.messages
    choices = [_blank(c) if everywhere or c.message is None else c for c in turn.choices]
    return replace(turn, choices=choices, prompt_token_ids=None if unseen else turn.prompt_token_ids)


def _blank(choice: SampledChoice) -> SampledChoice:
    return replace(choice, token_ids=None, logprobs=None)
