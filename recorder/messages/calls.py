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
    """The effective sampling parameters of a call: what the engine was told, not what the client left out."""

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
    token_ids: Sequence[int] | None  # as the engine said them: what is no id is found when the row is made
    logprobs: Sequence[float] | None  # as many as token_ids, or None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class KeyAccess:
    """For whom a call acts: which runs are its own. `key` names a family of keys: one, its successors, what it minted.

    What was made without a key is anybody's; who shows none on a proxy without keys owns everything.
    """

    key: str = ""  # "": no key was asked for
    everywhere: bool = True  # may name anybody's run: admin, or a proxy without keys
    own_groups: bool = True  # a group that it names is its own, else the project's
    run: tuple[str, str] | None = None  # group part and id of the one run that its key was minted for

    def owns(self, made_by: str) -> bool:
        """Whether what a family of keys made is this caller's own: all that evidence may lead to."""
        return not self.key or made_by in ("", self.key)

    def may_name(self, made_by: str) -> bool:
        """Whether it may go on with that run by its address."""
        return self.everywhere or self.owns(made_by)

    def may_read(self, made_by: str, address_group: str, external_id: str | None) -> bool:
        """Whether it may be shown the answers of the run at an address, and go on from them."""
        return self.may_name(made_by) and self.run in (None, (address_group, external_id))

    @property
    def groups_of(self) -> str:
        """Whose groups it joins by name; "": the project's."""
        return self.key if self.own_groups else ""


ANYBODY = KeyAccess()


@dataclass(frozen=True, slots=True)
class Address:
    """How the caller named its run: the parts it gave, checked, and nothing guessed."""

    trajectory: str | None = None  # external id
    group: str | None = None  # external id
    group_size: int | None = None  # declared size of the group
    purpose: Purpose = Purpose.TRAIN
    origin: Origin = Origin.LIVE
    turn_kind: CallKind | None = None  # None: it said nothing, and the shape of the run tells
    done: bool = False  # this call ends the trajectory
    tags: Mapping[str, str] = field(default_factory=dict)
    whose: KeyAccess = ANYBODY  # who says so


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
    made_by: str = ""  # the family of keys whose run it is; "": anybody's


@dataclass(frozen=True, slots=True)
class ParentCall:
    """The sampled choice that a call goes on from."""

    call_id: str
    choice: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """Which run a call belongs to, how that is known, and how surely."""

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
    previous_response_id: str | None = None  # the answer of ours that it says it goes on from
    left_out_tools: tuple[str, ...] = ()  # types of tools that it declared and the model did not get
    left_out_items: tuple[str, ...] = ()  # types of what its conversation tells and the model was not shown


@dataclass(frozen=True, slots=True)
class RedactedParts:
    """Where text of a call was taken out before it was written: indices of its messages, and of its choices.

    Both may be empty: then it was in its tools or fields, or the call goes on from one that was redacted.
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
        """What its client said of the turn: by Hone's own header, else by a vendor's. None: nothing."""
        return self.address.turn_kind or self.attribution.turn_kind

    @property
    def turn_kind(self) -> CallKind:
        """The turn's kind as far as the call alone can tell; the run's end may tell more
        (`recorder.messages.call_tree`)."""
        return self.stated_kind or CallKind.MAIN


CHOICE_EXTRAS: Final = "choice_extras"  # what each choice said beside its message (reasoning …), by its index as text
DROPPED_TOOLS: Final = "left_out_tools"  # types of tools that the client declared and the model did not get
DROPPED_ITEMS: Final = "left_out_items"  # types of what the conversation tells and the model was not shown
CLIENT: Final = "client"  # the product that its User-Agent named
STATED_KIND: Final = "stated_kind"  # the client said what kind of turn it was


def choice_extras(meta: Mapping[str, Any] | None, index: int) -> Mapping[str, Any]:
    """What a choice of a call with this `response_meta` said beside its message; empty where nothing."""
    kept: Mapping[str, Mapping[str, Any]] = (meta or {}).get(CHOICE_EXTRAS, {})
    return kept.get(str(index), {})
