"""One ended call in the internal form, complete or broken, as a dialect passes it to the recorder.

Owns: the data that passes between proxy and recorder, and the keys that the recorder writes into a call's
`response_meta`. Refuses: wire formats, storage, which fields of a message are stored there
(`recorder.messages.content_hashes`), and what dialects store there.

The internal form of messages, tools and response formats is OpenAI's chat form, whatever the wire format was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.states import CallKind, CallState, Confidence, Origin, Purpose

Message = Mapping[str, Any]

_LARGE_BYTES: Final = 1 << 17
_LARGE_MESSAGES: Final = 500


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """The effective sampling parameters of a call, as sent to the engine, with defaults that the client omitted."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    # names of used parameters that change the distribution in a way that the logprobs do not show
    distorting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampledChoice:
    """One choice as the engine sampled it."""

    index: int
    message: Message | None  # the assistant message in the chat form; None if there was none
    token_ids: Sequence[int] | None  # as the engine returned them; they are validated when the row is made
    logprobs: Sequence[float] | None  # as many as token_ids, or None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class KeyAccess:
    """The access of a call's key: which trajectories it owns.

    `key` names a family of keys: a key, its successors, and the keys that it created. Every caller owns trajectories
    that were created without a key. On a proxy without keys every caller owns everything.
    """

    key: str = ""  # "": no key is required
    everywhere: bool = True  # may address any trajectory: admin, or a proxy without keys
    own_groups: bool = True  # a group that it names belongs to its key family, else to the project
    run: tuple[str, str] | None = None  # group part and id of the trajectory that its key was created for

    def owns(self, made_by: str) -> bool:
        """Whether this caller owns what a key family made. Evidence may lead only to such trajectories."""
        return not self.key or made_by in ("", self.key)

    def may_name(self, made_by: str) -> bool:
        """Whether this caller may continue a trajectory of that key family by its address."""
        return self.everywhere or self.owns(made_by)

    def may_read(self, made_by: str, address_group: str, external_id: str | None) -> bool:
        """Whether this caller may read the answers of the trajectory at an address, and continue from them."""
        return self.may_name(made_by) and self.run in (None, (address_group, external_id))

    @property
    def groups_of(self) -> str:
        """The key family whose groups this caller joins by name; "": the project's groups."""
        return self.key if self.own_groups else ""


ANYBODY = KeyAccess()


@dataclass(frozen=True, slots=True)
class Address:
    """How the caller addressed its trajectory: the parts that it gave, validated; nothing is inferred."""

    trajectory: str | None = None  # external id
    group: str | None = None  # external id
    group_size: int | None = None  # declared size of the group
    purpose: Purpose = Purpose.TRAIN
    origin: Origin = Origin.LIVE
    call_kind: CallKind | None = None  # None: not stated; `call_tree` decides when the trajectory ends
    done: bool = False  # this call ends the trajectory
    tags: Mapping[str, str] = field(default_factory=dict)
    access: KeyAccess = ANYBODY  # the caller's


@dataclass(frozen=True, slots=True)
class TrajectoryRef:
    """The facts of a trajectory that the hot path needs."""

    id: str
    group_id: str | None
    external_id: str | None = None
    group_external_id: str | None = None
    version_id: str | None = None  # the version that it is pinned to (by its group, if that is declared)
    purpose: Purpose = Purpose.TRAIN
    session: str | None = None  # the client's name of the conversation, if it named no trajectory
    made_by: str = ""  # the key family that owns it; "": every caller owns it
    engine_url: str | None = None  # the engine that it stays on

    def on_engine(self, url: str) -> TrajectoryRef:
        """Return it with an engine. `dataclasses.replace` would call 13 functions."""
        return TrajectoryRef(
            self.id,
            self.group_id,
            self.external_id,
            self.group_external_id,
            self.version_id,
            self.purpose,
            self.session,
            self.made_by,
            url,
        )


@dataclass(frozen=True, slots=True)
class ParentCall:
    """The sampled choice that a call continues."""

    call_id: str
    choice: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """The trajectory that a call belongs to, the evidence, and the confidence."""

    source: str  # path, key, header, session_header, tool_call_id, metadata, lineage, new …
    confidence: Confidence
    trajectory: TrajectoryRef
    parent: ParentCall | None = None
    call_kind: CallKind | None = None  # the kind that a hint states, if any

    def to(self, trajectory: TrajectoryRef) -> Attribution:
        """Return the attribution to other facts of the trajectory. `dataclasses.replace` would call 9 functions."""
        return Attribution(self.source, self.confidence, trajectory, self.parent, self.call_kind)


UNATTRIBUTED: Final = Attribution("none", Confidence.NEW, TrajectoryRef("", None))  # until the store is back


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The part of a call that is known before the engine answers."""

    dialect: str
    endpoint: str
    model: str
    stream: bool
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    response_format: Mapping[str, Any] | None
    rest: Mapping[str, Any]  # the client's body without messages, tools and response format
    body_hash: bytes  # a hash of 16 bytes over the client's body
    sampling: SamplingParameters
    retry_count: int = 0
    previous_response_id: str | None = None  # the id of Hone's answer that it continues, if it gives one
    dropped_tools: tuple[str, ...] = ()  # types of tools that it declared and that the model did not get
    dropped_items: tuple[str, ...] = ()  # types of items in its conversation that the model did not get
    size_bytes: int = 0  # of its body, as the client sent it, and of the conversation that it refers to
    redaction_finished: bool = True  # False: nothing of its text is known (`recorder.messages.redaction`)

    @property
    def is_large(self) -> bool:
        """Whether work on all its messages takes more than 10 ms, which is too long for an event loop."""
        return self.size_bytes > _LARGE_BYTES or len(self.messages) > _LARGE_MESSAGES


@dataclass(frozen=True, slots=True)
class RedactedParts:
    """Where text of a call was redacted: indices of its messages, and of its choices.

    Both may be empty: then the text was in its tools or fields, or the call continues a redacted one.
    """

    messages: frozenset[int]
    choices: frozenset[int]
    finished: bool = True  # False: redaction did not finish, so the call is stored without text


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One ended call: everything that the recorder writes about it."""

    call_id: str
    project_id: str
    address: Address
    attribution: Attribution
    request: RecordedRequest
    state: CallState
    alias_id: str | None
    version_id: str | None
    base_fingerprint: str | None
    prompt_token_ids: Sequence[int] | None
    choices: Sequence[SampledChoice]
    usage: Mapping[str, Any] | None
    response_meta: Mapping[str, Any] | None
    http_status: int | None
    error: str | None
    started_at: float
    first_token_at: float | None
    finished_at: float | None
    issued_ids: Sequence[tuple[str, str, int]] = ()  # (issued id, "tool_call" | "response", choice index)
    redacted: RedactedParts | None = None  # None: nothing was redacted
    engine_url: str | None = None  # the engine that answered, if the trajectory stays on it

    @property
    def stated_kind(self) -> CallKind | None:
        """The kind that the client stated: by Hone's own header, else by a vendor's. None: not stated."""
        return self.address.call_kind or self.attribution.call_kind

    @property
    def call_kind(self) -> CallKind:
        """The call's kind, by the call alone. The trajectory's end may change it (`recorder.messages.call_tree`)."""
        return self.stated_kind or CallKind.MAIN


CHOICE_EXTRAS: Final = "choice_extras"  # a choice's fields besides its message (reasoning …), by its index as text
DROPPED_TOOLS: Final = "left_out_tools"  # types of tools that the client declared and that the model did not get
DROPPED_ITEMS: Final = "left_out_items"  # types of items in the conversation that the model did not get
CLIENT: Final = "client"  # the product that its User-Agent named
ENGINE: Final = "engine"  # the URL of the engine that answered
STATED_KIND: Final = "stated_kind"  # the client stated the call's kind


def choice_extras(meta: Mapping[str, Any] | None, index: int) -> Mapping[str, Any]:
    """Return a choice's fields besides its message, from its call's `response_meta`; empty if there are none."""
    kept: Mapping[str, Mapping[str, Any]] = (meta or {}).get(CHOICE_EXTRAS, {})
    return kept.get(str(index), {})
