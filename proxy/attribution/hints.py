"""Evidence about a call's trajectory that is not addressed to Hone: vendors' session headers, body fields, traces.

Owns: which headers and fields count, the kind of evidence of each, and sanitized, bounded values. Pure: headers and
body in, hints out, the strongest first. Refuses: looking anything up, and deciding (`proxy.attribution.attributor`).

Four kinds, by their common use:

- `SESSION`: a name of one conversation or session (`X-Session-Id`, `metadata.thread_id` …). Calls of two sessions are
 never one trajectory. One session may hold several trajectories, one after the other.
- `LOOSE`: a name that many trajectories may share (`prompt_cache_key` of a whole application), or a different one for
 each request (`x-litellm-trace-id`). It only distinguishes trajectories whose conversations are equal.
- `TRACE`: W3C trace context. A trace may be one request, or a whole batch: calls attributed by it alone are not trained
 on.
- `SPAN`: one request of a trace. For a model call it adds nothing to the trace; a tool call with a model call's own
 span was made for that trajectory.

A value may be anything. It never becomes a file name or an external id: sessions are stored separately, under the name
of their carrier, so that `X-Session-Id: x`, `metadata.thread_id: "x"` and the path `/t/x` stay three different things.
Long values and unprintable ones are stored as their hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

import orjson

MAX_SHOWN_CHARS: Final = 200  # a longer value is stored and shown as its hash
MAX_READ_CHARS: Final = 16_384  # no session's name is longer: longer values are ignored
AGENT_HEADERS: Final = (b"x-claude-code-agent-id", b"x-claude-code-parent-agent-id")  # sent by sub-agents only

_SESSION_HEADERS: Final = (
    b"x-litellm-session-id",
    b"helicone-session-id",
    b"x-claude-code-session-id",
    b"x-session-id",
    b"agent-session-id",  # Goose
    b"x-opencode-session",
    b"x-session-affinity",  # opencode and its followers
    b"x-openwebui-chat-id",
)
_CODEX_HEADERS: Final = (b"session-id", b"session_id")  # too common a name to trust from other clients
_CODEX_THREADS: Final = (b"thread-id", b"thread_id")
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"
)
# A product's name; a part after a slash that is not a number belongs to it, as in OpenAI's SDKs. Only characters of a
# token (RFC 9110), so that it can be printed.
_PRODUCT: Final = re.compile(rb"\s{0,8}[A-Za-z0-9!#$%&'*+.^_`|~-]{1,48}(?:/[A-Za-z][A-Za-z0-9_-]{0,15}(?![^\s]))?")
_METADATA: Final = ("session_id", "thread_id", "conversation_id")
_SESSION_FIELDS: Final = ("litellm_session_id", "session_id")  # the second is a field of vLLM's own


class HintKind(StrEnum):
    """The kind of evidence of a name."""

    SESSION = "session"
    LOOSE = "loose"
    TRACE = "trace"
    SPAN = "span"


@dataclass(frozen=True, slots=True)
class Hint:
    """One name that a call carries. `source` is recorded as the source of an attribution."""

    kind: HintKind
    source: str  # session_header, metadata, prompt_cache_key, trace, traceparent
    name: str  # of the header or field
    value: str  # at most MAX_SHOWN_CHARS, without control characters
    of_header: bool = False

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"


@dataclass(frozen=True, slots=True)
class AttributionHints:
    """All evidence of one call, the strongest first. `sub_agent`: the client marks it as a sub-agent's."""

    found: tuple[Hint, ...] = ()
    sub_agent: bool = False

    def session(self, *, of_header: bool) -> Hint | None:
        """Return the session that a header, or the body, names."""
        return next((h for h in self.found if h.kind is HintKind.SESSION and h.of_header is of_header), None)

    def of(self, kind: HintKind) -> tuple[Hint, ...]:
        """Return the hints of one kind."""
        return tuple(h for h in self.found if h.kind is kind)


NO_HINTS: Final = AttributionHints()


def read_hints(headers: Mapping[bytes, bytes], dialect: str, rest: Mapping[str, Any]) -> AttributionHints:
    """Return the hints in a request's headers (lower-case names) and body (without messages and tools)."""
    found = (*_of_headers(headers), *_of_body(dialect, rest), *_of_traces(headers))
    if not found:
        return NO_HINTS
    return AttributionHints(found, sub_agent=_is_sub_agent(headers))


def session_names(value: str) -> list[str]:
    """Return the names under which a session that clients call `value` may be stored: with each carrier's name."""
    headers = [_spelled(name) for name in (*_SESSION_HEADERS, *_CODEX_HEADERS, b"x-litellm-trace-id")]
    fields = [f"metadata.{name}" for name in (*_METADATA, "user_id")]
    carriers = dict.fromkeys((*headers, *fields, *_SESSION_FIELDS, "prompt_cache_key"))
    return [f"{carrier}:{_shown(value)}" for carrier in carriers]


def client_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the first product in the User-Agent, without its version: `codex_cli_rs`, `OpenAI/Python`."""
    match = _PRODUCT.match(headers.get(b"user-agent", b""))
    return match[0].strip().decode() if match is not None else None


def _of_headers(headers: Mapping[bytes, bytes]) -> Iterator[Hint]:
    names = [name for name in _SESSION_HEADERS if name in headers]
    if _is_codex(headers):
        names += [name for name in _CODEX_HEADERS if name in headers]
    for name in names:
        yield from _hint(HintKind.SESSION, "session_header", _spelled(name), _text(headers[name]), of_header=True)
    if (trace := headers.get(b"x-litellm-trace-id")) is not None:
        yield from _hint(HintKind.LOOSE, "session_header", "x-litellm-trace-id", _text(trace), of_header=True)


def _of_body(dialect: str, rest: Mapping[str, Any]) -> Iterator[Hint]:
    metadata = rest.get("metadata")
    if isinstance(metadata, Mapping):
        for name in _METADATA:
            yield from _hint(HintKind.SESSION, "metadata", f"metadata.{name}", metadata.get(name))
        if dialect == "messages":
            yield from _hint(HintKind.SESSION, "metadata", "metadata.user_id", _claude_session(metadata.get("user_id")))
    for name in _SESSION_FIELDS:
        if name in rest:
            yield from _hint(HintKind.SESSION, "metadata", name, rest[name])
    if (key := rest.get("prompt_cache_key")) is not None:
        yield from _hint(HintKind.LOOSE, "prompt_cache_key", "prompt_cache_key", key)


def _of_traces(headers: Mapping[bytes, bytes]) -> Iterator[Hint]:
    if (baggage := headers.get(b"baggage")) is not None:
        for entry in _text(baggage).split(",")[:64]:
            name, _, value = entry.partition("=")
            if name.strip() == "session.id":
                yield from _hint(HintKind.TRACE, "trace", "baggage.session.id", value.partition(";")[0], of_header=True)
    if (trace := headers.get(b"traceparent")) is not None:
        yield from read_traceparent(_text(trace))


def read_traceparent(value: object) -> tuple[Hint, ...]:
    """Return the hints of a `traceparent`, of a model call or a tool call: its span, then its trace; empty if it is
    invalid.

    As in W3C's Trace Context, in upper case too: ids of zeros are invalid, later versions may append fields.
    """
    match = _TRACEPARENT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        return ()
    trace, span = match.groups()
    return (
        Hint(HintKind.SPAN, "traceparent", "traceparent", f"{trace}-{span}", of_header=True),
        Hint(HintKind.TRACE, "trace", "traceparent", trace, of_header=True),
    )


def _hint(kind: HintKind, source: str, name: str, value: object, *, of_header: bool = False) -> Iterator[Hint]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if value.bit_length() <= 128 else None
    if isinstance(value, str) and len(value) <= MAX_READ_CHARS and (text := value.strip()):
        yield Hint(kind, source, name, _shown(text), of_header)


def _shown(text: str) -> str:
    if len(text) <= MAX_SHOWN_CHARS and text.isprintable():
        return text
    return "blake2b:" + blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _claude_session(user_id: object) -> str | None:
    """The session that Claude Code writes into the user's id: as JSON, in older releases behind `_session_`."""
    if not isinstance(user_id, str) or len(user_id) > MAX_READ_CHARS:
        return None
    if user_id.startswith("{"):
        try:
            fields = orjson.loads(user_id)
        except orjson.JSONDecodeError:
            return None
        session = fields.get("session_id") if isinstance(fields, dict) else None
        return session if isinstance(session, str) else None
    _, marker, session = user_id.rpartition("_session_")
    return session if marker and user_id.startswith("user_") else None


def _is_sub_agent(headers: Mapping[bytes, bytes]) -> bool:
    if any(headers.get(name, b"").strip() for name in AGENT_HEADERS):
        return b"x-claude-code-session-id" in headers
    if not _is_codex(headers):
        return False
    session = next((headers[name] for name in _CODEX_HEADERS if name in headers), None)
    thread = next((headers[name] for name in _CODEX_THREADS if name in headers), None)
    return session is not None and thread is not None and thread.strip() != session.strip()


def _is_codex(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"user-agent", b"").lstrip().lower().startswith(b"codex")


def _spelled(name: bytes) -> str:
    return name.decode().replace("_", "-")


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")
