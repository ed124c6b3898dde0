"""The interface of a wire format: a class that reads requests, and one object for each call that reads its answer.

Refuses: any format. A dialect does not know versions, groups, keys or rewards; the serving path does not know what a
body holds.

For each call `Dialect.read(body)` returns a `CallReader`, which holds the recorder's `RecordedRequest` and builds the
engine's body. `CallReader.answer()` returns an `Answer`: it takes what the engine sends, returns what the client gets,
and finally yields the parts of the recorder's `RecordedCall`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from proxy.dialects.tool_call_builder import ToolCallBuilder
from proxy.errors import CallerError
from recorder.messages.calls import RecordedRequest, SampledChoice


@dataclass(frozen=True, slots=True)
class DialectRules:
    """The settings that a dialect needs."""

    defaults: Literal["neutral", "engine"] = "neutral"
    media_hosts: frozenset[str] = frozenset()
    strict_tools: Literal["engine", "plain"] = "engine"
    forced_tools: Literal["engine", "plain"] = "engine"


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
    tool_calls: dict[int, ToolCallBuilder] = field(default_factory=dict)
    function_call: ToolCallBuilder | None = None  # the older form of a single tool call
    extras: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
