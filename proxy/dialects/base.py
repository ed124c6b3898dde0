"""What a wire format is to the rest of the proxy: a class that reads requests, and an object a call that reads answers.

Owns: the seam. Refuses: any format. A dialect never knows about versions, groups, keys or rewards; the serving path
never knows what is inside a body.

For a call: `Dialect.read(body)` gives a `CallReader` (the recorder's `RecordedRequest`, and the body for the engine);
`CallReader.answer()` gives an `Answer`, which is fed what the engine sends, gives back what the client gets, and in the
end holds the parts of the recorder's `Turn`.
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
    """What of the settings a dialect needs to know."""

    defaults: Literal["neutral", "engine"] = "neutral"
    media_hosts: frozenset[str] = frozenset()
    strict_tools: Literal["engine", "plain"] = "engine"
    forced_tools: Literal["engine", "plain"] = "engine"


@dataclass(frozen=True, slots=True)
class RecordableAnswer:
    """What the engine answered, in the recorder's form."""

    prompt_token_ids: Sequence[int] | None = None
    choices: Sequence[SampledChoice] = ()
    usage: Mapping[str, Any] | None = None
    response_meta: Mapping[str, Any] | None = None
    issued_ids: Sequence[tuple[str, str, int]] = ()


NOTHING_SAMPLED = RecordableAnswer()


class Answer(Protocol):
    """One call's answer as it comes."""

    finished: bool  # the engine finished every choice
    over: bool  # the engine said that nothing more follows
    begun: bool  # something was sampled
    error: str | None  # what the engine said was wrong, inside its answer: not passed on, the serving path tells it

    def body(self, data: bytes) -> bytes:
        """A whole answer without streaming: what the client gets. Raises EngineBroke for what is no answer."""

    def event(self, data: bytes) -> bytes:
        """One event of a stream: the bytes that the client gets for it now, perhaps none. Raises EngineBroke.

        The event that carries the last finish, and all that follow, are kept back for `tail`.
        """

    def tail(self) -> bytes:
        """What was kept back, to be sent when the turn is committed."""

    def sampled(self) -> RecordableAnswer:
        """The parts of the turn, also of an answer that broke off."""


class CallReader(Protocol):
    """One call's request as it was read."""

    request: RecordedRequest
    replaced: Mapping[str, float]  # sampling values that the engine is given in place of the client's

    @property
    def plainly(self) -> tuple[str, ...]:
        """What the client would have the engine hold the model to, and the engine is not told."""

    def override(self, values: Mapping[str, float]) -> None:
        """Let the engine sample with these values in place of the client's, which stay in the request's fields."""

    def as_asked(self) -> None:
        """Offer nothing plainly and replace nothing: whoever answers now is not learned from."""

    @property
    def chat(self) -> Mapping[str, Any] | None:
        """The request in the fields of chat completions; None where the engine is asked in others."""

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """The body for the engine; with `prompt_ids`, these are the prompt (only where there are chat fields)."""

    def answer(self) -> Answer:
        """An empty answer."""


class Dialect(Protocol):
    """A wire format."""

    name: ClassVar[str]
    path: ClassVar[str]  # what clients call
    engine_path: ClassVar[str]  # what the engine is asked

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> CallReader:
        """Read a request. Raises BadRequest."""

    def error_body(self, error: CallerError) -> bytes:
        """An error as a body."""

    def error_events(self, error: CallerError) -> bytes:
        """An error as the end of a stream."""


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
    function_call: ToolCallBuilder | None = None  # as tool calls were told before there were several
    extras: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
