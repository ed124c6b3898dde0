"""One finished or broken call in the internal form, as a dialect passes it to the recorder.

Owns: the data that passes between proxy and recorder, and the entries that the recorder keeps in a call's
`response_meta`. Refuses: wire formats and storage, which fields of a message are kept there
(`recorder.messages.content_hashes`), and what dialects store in `response_meta` for themselves.

The internal form of messages, tools and response formats is OpenAI's chat form, whatever the wire format was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.states import CallKind, CallState, Confidence, Origin, Purpose

Message = Mapping[str, Any]


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
    # names of parameters in force that bend the distribution in a way the logprobs do not show
    distorting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampledChoice:
    """One choice as the engine sampled it."""

    index: int
    message: Message | None  # the assistant message in the chat form; None when nothing came
    token_ids: Sequence[int] | None  # as the engine returned them: invalid ones are found when the row is made
    logprobs: Sequence[float] | None  # as many as token_ids, or None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class KeyAccess:
    """The access of a call's key: which trajectories are its own. `key` names a family of keys: a key, its successors,
    and the keys that it created.

    Trajectories created without a key are anybody's; a caller without a key on a proxy without keys owns everything.
    """

    key: str = ""  # "": no key is required
    everywhere: bool = True  # may name any trajectory: admin, or a proxy without keys
    own_groups: bool = True  # a group that it names is its own, else the project's
    run: tuple[str, str] | None = None  # group part and id of the trajectory that its key was created for

    def owns(self, made_by: str) -> bool:
        """Whether what a family of keys made is this caller's own: all that evidence may lead to."""
        return not self.key or made_by in ("", self.key)

    def may_name(self, made_by: str) -> bool:
        """Whether it may continue that trajectory by its address."""
        return self.everywhere or self.owns(made_by)

    def may_read(self, made_by: str, address_group: str, external_id: str | None) -> bool:
        """Whether it may read the answers of the trajectory at an address, and continue from them."""
        return self.may_name(made_by) and self.run in (None, (address_group, external_id))

    @property
    def groups_of(self) -> str:
        """Whose groups it joins by name; "": the project's."""
        return self.key if self.own_groups else ""


ANYBODY = KeyAccess()


@dataclass(frozen=True, slots=True)
class Address:
    """How the caller named its trajectory: the parts it gave, validated, with nothing inferred."""

    trajectory: str | None = None  # external id
    group: str | None = None  # external id
    group_size: int | None = None  # declared size of the group
    purpose: Purpose = Purpose.TRAIN
    origin: Origin = Origin.LIVE
    turn_kind: CallKind | None = None  # None: not stated; the shape of the trajectory decides
    done: bool = False  # this call ends the trajectory
    tags: Mapping[str, str] = field(default_factory=dict)
    whose: KeyAccess = ANYBODY  # the caller's


@dataclass(frozen=True, slots=True)
class TrajectoryRef:
    """A trajectory as the hot path knows it."""

    id: str
    group_id: str | None
    external_id: str | None = None
    group_external_id: str | None = None
    version_id: str | None = None  # its pin (the group's, where the group is declared)
    purpose: Purpose = Purpose.TRAIN
    session: str | None = None  # what a client called the conversation, where it named no run
    made_by: str = ""  # the key family that owns it; "": anybody's


@dataclass(frozen=True, slots=True)
class ParentCall:
    """The sampled choice that a call continues."""

    call_id: str
    choice: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """The trajectory that a call belongs to, by which evidence, and with which confidence."""

    source: str  # path, key, header, session_header, tool_call_id, metadata, lineage, new …
    confidence: Confidence
    trajectory: TrajectoryRef
    parent: ParentCall | None = None
    turn_kind: CallKind | None = None  # what a hint says of the call; None: nothing


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The half of a call that is known before the engine answers."""

    dialect: str
    endpoint: str
    model: str
    stream: bool
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    response_format: Mapping[str, Any] | None
    rest: Mapping[str, Any]  # the body without the three above, as the client sent it
    body_hash: bytes  # 16 bytes over the client's body
    sampling: SamplingParameters
    retry_count: int = 0
    previous_response_id: str | None = None  # the answer of Hone's that it names as the one it continues
    left_out_tools: tuple[str, ...] = ()  # types of tools that it declared and the model did not get
    left_out_items: tuple[str, ...] = ()  # types of items in its conversation that the model does not see


@dataclass(frozen=True, slots=True)
class RedactedParts:
    """Where text of a call was redacted: indices of its messages, and of its choices.

    Both may be empty: then the text was in its tools or fields, or the call continues a redacted one.
    """

    messages: frozenset[int]
    choices: frozenset[int]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call, ended: everything that is written about it."""

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
    issued_ids: Sequence[tuple[str, str, int]] = ()  # (id we gave out, "tool_call" | "response", choice index)
    redacted: RedactedParts | None = None  # None: nothing was taken out of it

    @property
    def stated_kind(self) -> CallKind | None:
        """The kind that the client stated: by Hone's own header, else by a vendor's. None: not stated."""
        return self.address.turn_kind or self.attribution.turn_kind

    @property
    def turn_kind(self) -> CallKind:
        """The call's kind as far as the call alone shows; the trajectory's end may show more
        (`recorder.messages.call_tree`).
        """
        return self.stated_kind or CallKind.MAIN


CHOICE_EXTRAS: Final = "choice_extras"  # what each choice holds besides its message (reasoning …), by its index as text
DROPPED_TOOLS: Final = "left_out_tools"  # types of tools that the client declared and the model did not get
DROPPED_ITEMS: Final = "left_out_items"  # types of what the conversation tells and the model was not shown
CLIENT: Final = "client"  # the product that its User-Agent named
STATED_KIND: Final = "stated_kind"  # the client stated the call's kind


def choice_extras(meta: Mapping[str, Any] | None, index: int) -> Mapping[str, Any]:
    """What a choice of a call with this `response_meta` holds besides its message; empty if nothing."""
    kept: Mapping[str, Mapping[str, Any]] = (meta or {}).get(CHOICE_EXTRAS, {})
    return kept.get(str(index), {})
