"""The interface of a wire format, and the parts of an answer that several formats share.

Owns: what a dialect implements (a class that reads requests, and one object for each call that reads its answer), and
tool calls assembled from an engine's parts. Refuses: any single format. A dialect does not know versions, groups, keys
or rewards; the serving path does not know what a body holds.

For each call `Dialect.read(body)` returns a `CallReader`, which holds the recorder's `RecordedRequest` and builds the
engine's body. `CallReader.answer()` returns an `Answer`: it takes what the engine sends, returns what the client gets,
and finally yields the parts of the recorder's `RecordedCall`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from proxy.errors import CallerError
from recorder.base.json_limits import parse_strict_json_text
from recorder.messages.calls import RecordedRequest, SampledChoice

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DialectRules:
    """The settings that a dialect needs."""

    defaults: Literal["neutral", "engine"] = "neutral"
    media_hosts: frozenset[str] = frozenset()
    strict_tools: Literal["engine", "plain"] = "engine"
    forced_tools: Literal["engine", "plain"] = "engine"
    max_messages: int | None = None  # in one request; None: any number
    max_values: int | None = None  # in one body


@dataclass(frozen=True, slots=True)
class RecordableAnswer:
    """The engine's answer in the recorder's form."""

    prompt_token_ids: Sequence[int] | None = None
    choices: Sequence[SampledChoice] = ()
    usage: Mapping[str, Any] | None = None
    response_meta: Mapping[str, Any] | None = None
    issued_ids: Sequence[tuple[str, str, int]] = ()


NOTHING_SAMPLED = RecordableAnswer()


class Answer(Protocol):
    """One call's answer while it arrives."""

    finished: bool  # every choice is finished
    over: bool  # the engine has marked the end
    begun: bool  # something was sampled
    error: str | None  # an error inside the engine's answer; the serving path sends it, not this object

    def body(self, data: bytes) -> bytes:
        """Return the client's form of a whole answer. Raises EngineFailed if `data` is not an answer."""

    def event(self, data: bytes) -> bytes:
        """Return the client's bytes for one event of a stream, perhaps none. Raises EngineFailed.

        The event with the last finish, and all that follow, are held back for `tail`.
        """

    def tail(self) -> bytes:
        """Return the bytes that `event` held back, to be sent after the commit."""

    def sampled(self) -> RecordableAnswer:
        """Return the recordable parts, also of an answer that broke off."""


class CallReader(Protocol):
    """One call's request."""

    request: RecordedRequest
    replaced: Mapping[str, float]  # sampling values that replace the client's

    @property
    def unenforced(self) -> tuple[str, ...]:
        """The features that the client wants enforced, and that the engine does not enforce."""

    def override(self, values: Mapping[str, float]) -> None:
        """Replace sampling values for the engine; the client's stay in the request's fields."""

    def undo_changes(self) -> None:
        """Restore the client's features and values: the answer to this request is not trained on."""

    @property
    def chat(self) -> Mapping[str, Any] | None:
        """The request in the fields of chat completions; None if the engine gets another form."""

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """Return the body for the engine; `prompt_ids`, if given, are its prompt (only with chat fields)."""

    def answer(self) -> Answer:
        """Return an empty answer."""


class Dialect(Protocol):
    """A wire format."""

    name: ClassVar[str]
    path: ClassVar[str]  # the clients' route
    engine_path: ClassVar[str]  # the engine's route

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> CallReader:
        """Read a request. Raises BadRequest."""

    def error_body(self, error: CallerError) -> bytes:
        """Return an error as a body."""

    def error_events(self, error: CallerError) -> bytes:
        """Return an error as the end of a stream."""


@dataclass(slots=True)
class Choice:
    """One choice while it grows."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    tool_calls: ToolCallBuilders = field(default_factory=lambda: ToolCallBuilders())
    function_call: ToolCallBuilder | None = None  # the older form of a single tool call
    extras: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class ToolCallBuilder:
    """A tool call while it grows, within a delta and over a whole answer.

    A busy engine puts several parts of one call into one delta. Clients that only merge parts across events (as
    OpenAI's streaming helper does) lose the first of them, so a delta that is sent has one part per call.
    """

    id: str | None = None
    type: str = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def add(self, part: Body) -> None:
        """Add one part. A repeated id is removed from it: clients concatenate the texts of parts."""
        if self.id is None:
            self.id = _text(part.get("id"))
        elif "id" in part:
            del part["id"]
        self.type = _text(part.get("type")) or self.type
        self.add_function(part.get("function") or {})

    def add_function(self, function: Body) -> None:
        """Add to the name and the arguments."""
        for pieces, text in ((self.name, function.get("name")), (self.arguments, function.get("arguments"))):
            if piece := _text(text):
                pieces.append(piece)

    def function(self) -> Body:
        """Return the name and the arguments."""
        return {"name": "".join(self.name), "arguments": "".join(self.arguments)}

    def whole(self) -> Body:
        """Return the call in a message's form."""
        return {"id": self.id, "type": self.type, "function": self.function()}


class ToolCallBuilders(dict[int, ToolCallBuilder]):
    """The tool calls of a choice, by an index of their own.

    Some providers number all parallel calls 0, or give no number. So a part with a name and another id than the call of
    its number begins a call, which gets the next free index; later parts of that number continue it.
    """

    __slots__ = ("_current",)

    def __init__(self) -> None:
        super().__init__()
        self._current: dict[int, int] = {}  # the engine's number → the index of its newest call

    def place(self, part: Body, at: int, *, streamed: bool) -> int:
        """Return the index of a part's call, and write it into the part if it differs from the engine's number.

        `at`: the part's place among those that came together, for a part without a number. A streamed part always gets
        an index: clients need it. Raises TypeError or AttributeError for a malformed part.
        """
        number = part.get("index", at)
        if type(number) is not int or number < 0:
            raise TypeError(f"{number!r:.60} is not an index of a tool call")
        index = self._current.get(number)
        if index is None or self._begins_another(index, part):
            index = self._current[number] = number if number not in self else max(self) + 1
        if index != number or (streamed and "index" not in part):
            part["index"] = index
        return index

    def _begins_another(self, index: int, part: Body) -> bool:
        known, given = self[index].id, part.get("id")
        return bool(known and given and given != known and (part.get("function") or {}).get("name"))


def add_deltas(calls: ToolCallBuilders, parts: list[Body], *, streamed: bool = True) -> list[Body]:
    """Add a delta's parts to `calls`, and return them merged to one part per call, in the calls' order.

    Raises TypeError or AttributeError for malformed parts.
    """
    joined: dict[int, Body] = {}
    for at, part in enumerate(parts):
        index = calls.place(part, at, streamed=streamed)
        calls.setdefault(index, ToolCallBuilder()).add(part)
        known = joined.get(index)
        joined[index] = part if known is None else _joined(known, part)
    return [joined[index] for index in sorted(joined)]


def _joined(part: Body, more: Body) -> Body:
    """Return two parts of one call, merged."""
    one, other = part.get("function") or {}, more.get("function") or {}
    texts = {name: (one.get(name) or "") + (other.get(name) or "") for name in ("name", "arguments")}
    joined = {name: text for name, text in texts.items() if text or one.get(name) is not None}
    added = {name: value for name, value in more.items() if part.get(name) is None}
    return {**part, **added, "function": {**other, **one, **joined}}


class CallSequence:
    """Puts the parts of parallel tool calls into an order in which no call begins before the one before it is complete.

    For formats that send one call at a time. A call is complete if its arguments are a JSON object. Until then the
    parts of later calls wait; at the end `rest` returns them.
    """

    __slots__ = ("_arguments", "_open", "_over", "_waiting")

    def __init__(self) -> None:
        self._open: int | None = None
        self._arguments: list[str] = []  # of the open call
        self._over: set[int] = set()
        self._waiting: dict[int, list[Body]] = {}  # by index, in the order in which they began

    def add(self, part: Body) -> list[Body]:
        """Return the parts to send now. A part of a call that is over is returned too: the format refuses it."""
        index = part["index"]
        if index in self._over:
            return [part]
        if index in self._waiting:
            self._waiting[index].append(part)
            return []
        if self._open is not None and index != self._open and not is_json_object("".join(self._arguments)):
            self._waiting[index] = [part]
            return []
        return [*self._send(index, [part]), *self._next()]

    def rest(self) -> list[Body]:
        """Return the parts that still wait."""
        waiting, self._waiting = self._waiting, {}
        return [part for parts in waiting.values() for part in parts]

    def _next(self) -> list[Body]:
        """The parts of the calls that need not wait any more."""
        sent: list[Body] = []
        while self._waiting and is_json_object("".join(self._arguments)):
            index = next(iter(self._waiting))
            sent += self._send(index, self._waiting.pop(index))
        return sent

    def _send(self, index: int, parts: list[Body]) -> list[Body]:
        if index != self._open:
            if self._open is not None:
                self._over.add(self._open)
            self._open, self._arguments = index, []
        self._arguments += [(part.get("function") or {}).get("arguments") or "" for part in parts]
        return parts


def is_json_object(text: str) -> bool:
    """Whether a model's arguments are a JSON object, which can be followed by nothing but white space."""
    if not text.rstrip().endswith("}"):
        return False  # cheap, since it is asked for while arguments grow
    try:
        return isinstance(parse_strict_json_text(text), dict)
    except (ValueError, RecursionError):
        return False


def require_call_start(part: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id and the name of a call that begins, for a format that sends both at once. Raises ValueError."""
    call_id, name = part.get("id"), (part.get("function") or {}).get("name")
    if not call_id or name is None:
        raise ValueError("a tool call began without an id or a name")
    return call_id, name


def require_continuation(part: Body, *, is_open: bool) -> None:
    """Raise ValueError if a part continues a call that the client can no longer receive: it would join another call."""
    function = part.get("function") or {}
    if function.get("name"):
        raise ValueError("the name of a tool call arrived in pieces")
    if function.get("arguments") and not is_open:
        raise ValueError("the model continued a tool call after it had begun another")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value
