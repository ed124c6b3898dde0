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

Redaction takes at most `TIMEOUT_S` a call. Long calls are redacted in a thread; patterns search long texts in pieces or
let other threads run, so that the proxy answers meanwhile. A call whose redaction did not finish is stored without any
message, field, id or logprob (`redaction_timeout`), is counted and logged, and is evidence for nothing.

Not redacted: text inside images or audio, text in another encoding (base64, percent-encoding), and a match that a
broken answer cuts off. Addresses (the ids of trajectories and groups) are stored unchanged, because agents need them. A
campaign's scenarios and its agents' results belong to the operator and are not checked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, TypeVar

from recorder.base.json_limits import parse_json_text
from recorder.base.lru import Lru
from recorder.base.patterns import Pattern, parse_pattern
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.messages import content_hashes
from recorder.messages.calls import Message, RecordedCall, RecordedRequest, RedactedParts, SampledChoice
from recorder.states import CallState

log = logging.getLogger(__name__)
T = TypeVar("T")

TIMEOUT_S: Final = 1.0  # of one call; 20 MB take as long
MARK: Final = "[redacted:timeout]"  # in place of a text whose redaction did not finish
_AT_ONCE_CHARS: Final = 1 << 16  # redacted in the event loop: 3 ms
_AT_ONCE_S: Final = 0.02  # then a thread begins anew: an operator's own pattern may be slow on a short text

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
_IDS_ALONE: Final = frozenset("[],0123456789")
_ESCAPED_ASCII: Final = re.compile(r"\\u00([2-7][0-9A-Fa-f])")
_REMEMBERED: Final = 256
_threads = ThreadPoolExecutor(2, thread_name_prefix="redaction")


@dataclass(frozen=True, slots=True)
class _RedactedMessages:
    """Messages as the client sent them (`given`) and as they are stored (`kept`: none if it did not finish)."""

    given: Sequence[Message]
    kept: Sequence[Message]
    finished: bool = True


class _Walk:
    """One walk over the parts of a call. Its methods raise TimeoutError past the deadline."""

    def __init__(self, patterns: Sequence[Pattern], deadline: float) -> None:
        self._patterns = patterns
        self._deadline = deadline

    def text(self, text: str) -> str:
        """Return `text` with a mark in place of each match; JSON with escapes is decoded before matching.

        If anything matched, such JSON is serialized again, because the escapes would reveal parts of a secret. Text
        that cannot be decoded and has a match behind escapes becomes one mark.
        """
        plain = self._marked(text)
        if "\\" not in plain:
            return plain
        if plain.lstrip()[:1] in ("{", "[", '"'):
            try:
                inner = parse_json_text(plain)
                kept = self.value(inner)
                return plain if kept == inner and plain == text else json.dumps(kept, ensure_ascii=False)
            except (ValueError, RecursionError):
                pass
        if "\\u00" not in plain:
            return plain
        decoded = _ESCAPED_ASCII.sub(lambda found: chr(int(found[1], 16)), plain)
        hidden = self._spans(decoded)
        return f"[redacted:{hidden[0][2]}]" if hidden else plain

    def value(self, value: Any) -> Any:
        """Return a JSON value with a mark in place of each match, in texts, numbers and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._key(k): v if _is_word(k, v) else self.value(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            if time.monotonic() > self._deadline:
                raise TimeoutError("the time for redaction is over")
            return type(value)(map(self.value, value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = str(value)
            marked = self._marked(shown)
            return value if marked == shown else marked
        return value

    def strings(self, value: Any) -> Any:
        """As `value`, but numbers stay: those of an answer are the engine's times and counts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {k: self.strings(v) for k, v in value.items()}
        return [self.strings(v) for v in value] if isinstance(value, list | tuple) else value

    def messages(self, messages: Sequence[Message]) -> _RedactedMessages:
        """Return messages as they are stored."""
        return _RedactedMessages(messages, [self.message(m) or {} for m in messages])

    def message(self, message: Message | None) -> Message | None:
        """Return a message as it is stored."""
        if message is None:
            return None
        content = message.get("content")
        if isinstance(content, str) and content[:1] == "[" and _is_ids(content):
            return {**self.value({**message, "content": None}), "content": "[redacted:token_ids]"}
        kept: Message = self.value(message)
        return kept

    def request(self, request: RecordedRequest, messages: _RedactedMessages) -> RecordedRequest:
        """Return a request as it is stored; `messages` are its own."""
        if not messages.finished:
            return _without_text(request)
        tools = self.value(request.tools) if request.tools is not None else None
        form = self.value(request.response_format) if request.response_format is not None else None
        kept = replace(
            request,
            messages=messages.kept,
            tools=tools,
            response_format=form,
            rest=self.value(request.rest),
            sampling=replace(request.sampling, stop=self.value(request.sampling.stop)),
        )
        return replace(kept, body_hash=_body_hash(kept))

    def answer(self, turn: RecordedCall) -> RecordedCall:
        """Return a call whose parts other than the request are as they are stored."""
        return replace(
            turn,
            address=replace(turn.address, tags=self.value(turn.address.tags)),
            choices=[replace(c, message=self.message(c.message)) for c in turn.choices],
            error=self.text(turn.error) if turn.error is not None else None,
            response_meta=self.strings(turn.response_meta),
            issued_ids=[(self.text(id_), kind, choice) for id_, kind, choice in turn.issued_ids],
        )

    def _key(self, key: Any) -> Any:
        return self._marked(key) if isinstance(key, str) and key not in _FORM else key

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        return sorted((start, end, p.name) for p in self._patterns for start, end in p.spans(text, self._deadline))

    def _marked(self, text: str) -> str:
        spans = self._spans(text)
        if not spans:
            return text
        parts, at = [], 0
        for start, end, name in spans:
            if start >= at:
                parts += [text[at:start], f"[redacted:{name}]"]
            at = max(at, end)  # overlapping matches become one mark
        return "".join((*parts, text[at:]))


class Redactor:
    """Redacts by the configured patterns. Without patterns it returns its input.

    `prepare` and `redact_call` are for the event loop. The other methods redact at once what was not prepared.
    """

    def __init__(self, entries: Sequence[str] = (), timeout_s: float = TIMEOUT_S) -> None:
        self._patterns: tuple[Pattern, ...] = tuple(map(parse_pattern, entries))
        self._timeout_s = timeout_s
        # by the identity of the messages, which an entry keeps alive, so that it is not used again
        self._seen: Lru[int, _RedactedMessages] = Lru(_REMEMBERED)
        self._requests: Lru[int, tuple[RecordedRequest, RecordedRequest]] = Lru(_REMEMBERED)
        self._redacted: Lru[str, bool] = Lru(20_000)  # calls of this process that had a match
        self._alarm = RateLimitedLog(log)
        self.timeouts = 0  # how often redaction did not finish
        self.text("4111 1111 1111 1112 @ eyJ")  # what patterns load, they load now

    def __bool__(self) -> bool:
        return bool(self._patterns)

    # --- at once

    def text(self, text: str) -> str:
        """Return `text` with a mark in place of each match, or one mark if the time did not suffice."""
        return str(self.value(text))

    def value(self, value: Any) -> Any:
        """Return a JSON value with a mark in place of each match; an empty one if the time did not suffice."""
        if not self._patterns:
            return value
        try:
            return self._walk().value(value)
        except (TimeoutError, RecursionError):
            return self._unfinished_value(value)

    def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages as they are stored. The same list returns the same list, by which caches identify a chain.

        Returns none if the time did not suffice.
        """
        return self._look(messages).kept if self._patterns else messages

    def request(self, request: RecordedRequest) -> RecordedRequest:
        """Return a request as it is stored."""
        if not self._patterns:
            return request
        kept = self._known_request(request)
        if kept is None:
            walk = self._walk()
            try:
                seen = self._known_messages(request.messages) or walk.messages(request.messages)
                self._keep(request, seen, walk.request(request, seen))
            except (TimeoutError, RecursionError):
                self._keep_nothing(request)
            kept = self._known_request(request)
            assert kept is not None
        return kept

    def turn(self, turn: RecordedCall) -> RecordedCall:
        """Return a call as it is stored. Its `redacted` says where text was redacted; None: nowhere."""
        if not self._patterns:
            return turn
        request = self.request(turn.request)
        try:
            return self._joined(turn, request, self._walk().answer(turn))
        except (TimeoutError, RecursionError):
            return self._unfinished(turn, request)

    # --- for the event loop

    async def prepare(self, request: RecordedRequest) -> None:
        """Redact a request, so that the other methods need no time for it."""
        if not self._patterns or self._known_request(request) is not None:
            return

        known = self._known_messages(request.messages)

        def redact(walk: _Walk) -> tuple[_RedactedMessages, RecordedRequest]:
            seen = known or walk.messages(request.messages)
            return seen, walk.request(request, seen)

        try:
            whole = (request.messages, request.tools, request.response_format, request.rest)
            self._keep(request, *await self._in_time(redact, whole))
        except (TimeoutError, RecursionError):
            self._keep_nothing(request)

    async def redact_call(self, turn: RecordedCall) -> RecordedCall:
        """Return a call as it is stored, as `turn` does; other tasks run meanwhile."""
        if not self._patterns:
            return turn
        await self.prepare(turn.request)
        request = self.request(turn.request)
        if turn.state is not CallState.OPEN:  # it is not asked for again
            self._requests.drop(id(turn.request.messages))
            self._seen.drop(id(turn.request.messages))
        try:
            whole = ([c.message for c in turn.choices], turn.response_meta, turn.error)
            return self._joined(turn, request, await self._in_time(lambda walk: walk.answer(turn), whole))
        except (TimeoutError, RecursionError):
            return self._unfinished(turn, request)

    async def redact_value(self, value: Any) -> Any:
        """Return a JSON value as `value` does; other tasks run meanwhile."""
        if not self._patterns:
            return value
        try:
            return await self._in_time(lambda walk: walk.value(value), value)
        except (TimeoutError, RecursionError):
            return self._unfinished_value(value)

    async def _in_time(self, redact: Callable[[_Walk], T], whole: Any) -> T:
        """Redact at once if that is a matter of milliseconds, else in a thread."""
        if _is_short(whole):
            try:
                return redact(_Walk(self._patterns, time.monotonic() + min(_AT_ONCE_S, self._timeout_s)))
            except TimeoutError:
                pass
        walk = self._walk()  # the time of waiting for a thread counts
        return await asyncio.get_running_loop().run_in_executor(_threads, redact, walk)

    # --- results

    def _walk(self) -> _Walk:
        return _Walk(self._patterns, time.monotonic() + self._timeout_s)

    def _known_messages(self, messages: Sequence[Message]) -> _RedactedMessages | None:
        known = self._seen.get(id(messages))
        return known if known is not None and known.given is messages else None

    def _known_request(self, request: RecordedRequest) -> RecordedRequest | None:
        known = self._requests.get(id(request.messages))
        if known is None or known[0].messages is not request.messages:
            return None
        given, kept = known
        if given is request:
            return kept
        if not all(getattr(given, name) is getattr(request, name) for name in ("tools", "response_format", "rest")):
            return None
        stop = kept.sampling.stop if given.sampling.stop == request.sampling.stop else self.value(request.sampling.stop)
        parts = {name: getattr(kept, name) for name in _REDACTED_FIELDS}
        return replace(request, sampling=replace(request.sampling, stop=stop), **parts)

    def _keep(self, request: RecordedRequest, seen: _RedactedMessages, kept: RecordedRequest) -> None:
        self._seen.put(id(request.messages), seen)
        self._requests.put(id(request.messages), (request, kept))

    def _keep_nothing(self, request: RecordedRequest) -> None:
        self._keep(request, self._unfinished_messages(request.messages), _without_text(request))

    def _look(self, messages: Sequence[Message]) -> _RedactedMessages:
        known = self._known_messages(messages)
        if known is None:
            try:
                known = self._walk().messages(messages)
            except (TimeoutError, RecursionError):
                known = self._unfinished_messages(messages)
            self._seen.put(id(messages), known)
        return known

    def _joined(self, turn: RecordedCall, request: RecordedRequest, kept: RecordedCall) -> RecordedCall:
        """Return a call of its redacted request and its otherwise redacted parts."""
        if not request.redaction_finished:
            return self._unfinished(turn, request)
        hits = frozenset(
            at for at, (a, b) in enumerate(zip(request.messages, turn.request.messages, strict=True)) if a != b
        )
        sampled = frozenset(k.index for k, c in zip(kept.choices, turn.choices, strict=True) if k.message != c.message)
        parent = turn.attribution.parent
        touched = (
            hits
            or sampled
            or _seen_parts(request) != _seen_parts(turn.request)
            or (parent is not None and parent.call_id in self._redacted)
        )
        kept = replace(kept, request=request)
        if touched:
            self._redacted.put(turn.call_id, True)
            kept = replace(
                kept, redacted=RedactedParts(hits, sampled), response_meta=_not_spelled_out(kept.response_meta)
            )
        return _without_ids(kept, everywhere=bool(touched))

    # --- what did not finish

    def _note_timeout(self) -> None:
        self.timeouts += 1
        self._alarm(
            logging.ERROR,
            "redaction took more than %g s: the text is not stored. Simplify the expressions in recorder.redact. "
            "See hone_redaction_timeouts in /metrics.",
            self._timeout_s,
        )

    def _unfinished_value(self, value: Any) -> Any:
        self._note_timeout()
        if isinstance(value, Mapping):
            return {}
        return type(value)() if isinstance(value, list | tuple) else MARK

    def _unfinished_messages(self, messages: Sequence[Message]) -> _RedactedMessages:
        self._note_timeout()
        return _RedactedMessages(messages, [], finished=False)

    def _unfinished(self, turn: RecordedCall, request: RecordedRequest) -> RecordedCall:
        """Return a call without any text, id or logprob."""
        if request.redaction_finished:  # the answer did not
            self._note_timeout()
            request = _without_text(turn.request)
        self._redacted.put(turn.call_id, True)
        return replace(
            turn,
            address=replace(turn.address, tags={}),
            request=request,
            choices=[replace(_blank(c), message=None) for c in turn.choices],
            prompt_token_ids=None,
            error=MARK if turn.error is not None else None,
            response_meta=None,
            issued_ids=(),
            redacted=RedactedParts(frozenset(), frozenset(), finished=False),
        )


_REDACTED_FIELDS: Final = ("messages", "tools", "response_format", "rest", "body_hash", "redaction_finished")


def _without_text(request: RecordedRequest) -> RecordedRequest:
    """Return a request without any text. Its hash is its own, so that it is no other request's retry."""
    return replace(
        request,
        messages=[],
        tools=None,
        response_format=None,
        rest={},
        body_hash=os.urandom(16),
        sampling=replace(request.sampling, stop=()),
        redaction_finished=False,
    )


def _is_short(value: Any) -> bool:
    """Return whether a JSON value has little to redact. It looks at no more than that."""
    room, pending = _AT_ONCE_CHARS, [value]
    while pending and room > 0:
        one = pending.pop()
        room -= 16 + (len(one) if isinstance(one, str) else 0)
        if isinstance(one, Mapping):
            room -= 16 * len(one)
            if room > 0:
                pending += one.keys()
                pending += one.values()
        elif isinstance(one, list | tuple):
            room -= 16 * len(one)
            if room > 0:
                pending += one
    return room > 0


def _is_ids(content: str) -> bool:
    """Return whether a content is a list of token ids. A long one is not searched at once."""
    pieces = range(0, len(content), _AT_ONCE_CHARS)
    return (len(content) <= _AT_ONCE_CHARS and _IDS.fullmatch(content) is not None) or (
        len(content) > _AT_ONCE_CHARS and all(_IDS_ALONE.issuperset(content[at : at + _AT_ONCE_CHARS]) for at in pieces)
    )


def _is_word(key: Any, value: Any) -> bool:
    return key in _WORDS and isinstance(value, str) and value.isascii() and len(value) <= 32 and value.isidentifier()


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
