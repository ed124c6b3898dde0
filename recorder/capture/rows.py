"""Convert a call to rows of the store, before the transaction begins.

Owns: the order of columns, and which messages, blobs and tokens of a call are new. Refuses: SQL, and the call's
trajectory: that may be sealed by then, so the call's own row is made last (`call_row`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson

from recorder.capture.cache import CaptureCache
from recorder.capture.lookups.waiting_tool_calls import BroughtResults
from recorder.errors import RecorderError
from recorder.messages import content_hashes, exchanges, media, tokens
from recorder.messages.calls import (
    CHOICE_EXTRAS,
    STATED_KIND,
    Address,
    Message,
    ParentCall,
    RecordedCall,
    SampledChoice,
    TrajectoryRef,
)
from recorder.messages.long_texts import LONG_CHARS, dump_long_texts
from recorder.messages.plain_text import parse_tool_requests
from recorder.messages.tool_results import shown_results
from recorder.messages.trainability import untrainable_reason
from recorder.states import CallKind, CallState, Confidence

Row = tuple[Any, ...]
ROW_BYTES = 2048  # approximate size of a prepared call's ids, numbers and objects


@dataclass(frozen=True, slots=True)
class ChoiceLeaf:
    """The facts of a sampled choice that the process caches after its commit."""

    parent: ParentCall
    node: bytes | None
    hashes: bytes  # of the blocks that end inside the sampled ids


@dataclass(slots=True)
class PreparedCall:
    """A call, ready to be written. It holds rows and not the request, because the queue is bounded in bytes."""

    call_id: str
    project_id: str
    state: CallState
    alias_id: str | None
    version_id: str | None
    engine_url: str | None  # the engine that answered, if the trajectory stays on it
    address: Address
    trajectory: TrajectoryRef  # as attributed; it may be sealed when the call is written
    parent: ParentCall | None
    body_hash: bytes
    retry_count: int
    started_at: float
    issued_ids: Sequence[tuple[str, str, int]]
    confidence: Confidence
    tool_requests: Sequence[Row]  # choice, position, tool-call id, match
    brought: BroughtResults | None  # tools' results in its request, for tool calls that wait for them
    leaf_choice: int | None  # None: the call does not end the main path
    nodes: Sequence[Row]
    blobs: Sequence[Row]
    node_blobs: Sequence[Row]
    choices: Sequence[Row]
    leaves: Sequence[ChoiceLeaf]
    prompt: bytes | None  # packed ids
    prompt_hashes: bytes
    row_middle: Row  # the call's columns between trajectory and prompt
    row_end: Row  # and those after the prompt
    size_bytes: int
    deletions: int  # `CaptureCache.deletions` at preparation: if it differs, omitted rows may be missing


def json_text(value: Any) -> str:
    """Return `value` as JSON, with its order of keys."""
    try:
        if value.__class__ is dict and (text := value.get("content")).__class__ is str and len(text) > LONG_CHARS:
            return dump_long_texts(value).decode()
        return orjson.dumps(value).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates
        return json.dumps(value, separators=(",", ":"), default=_as_dict)


def _as_dict(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def prepare_call(turn: RecordedCall, key: bytes, memory: CaptureCache, *, exchange_ids: bool = False) -> PreparedCall:
    """Prepare everything about a call that does not depend on its trajectory.

    `exchange_ids`: whether a call that continues this one may be found by its last question and answer. Raises
    RecorderError for values that no row can hold.
    """
    try:
        return _prepare(turn, key, memory, exchange_ids=exchange_ids)
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError) as e:
        raise RecorderError(f"call {turn.call_id} cannot be recorded: {type(e).__name__}: {e}") from e


def _prepare(turn: RecordedCall, key: bytes, memory: CaptureCache, *, exchange_ids: bool) -> PreparedCall:
    request, attribution = turn.request, turn.attribution
    deletions = memory.deletions.get(turn.project_id, 0)  # first: the caches may change meanwhile
    writing = _RowBuilder(turn.project_id, key, memory)
    redacted = turn.redacted
    prompt_node = writing.messages(request.messages, redacted.messages if redacted else ())
    said = turn.prompt_token_ids
    prompt = tokens.pack_heard_ids(said) if said is not None else None
    readable = said is None or prompt is not None
    seed = tokens.chain_seed(key)
    hashes = tokens.block_hashes(prompt, seed) if prompt else b""
    # a caller that states a trajectory states it in every call
    is_stated = attribution.confidence is Confidence.STATED
    question = exchanges.question_form(key, request.messages) if exchange_ids and not is_stated else None
    choices, leaves, sampled_bytes = [], [], 0
    for choice in turn.choices:
        touched = redacted is not None and choice.index in redacted.choices
        node = writing.sampled(choice.message, prompt_node, len(request.messages), touched)
        row, leaf = _choice(turn, choice, node, prompt, hashes, seed, readable)
        exchange = exchanges.exchange_id(key, question, choice.message) if choice.message is not None else None
        choices.append((*row, exchange))
        sampled_bytes += len(row[3] or b"") + len(row[4] or b"")  # ids and logprobs
        leaves.append(leaf)
    middle = _row_middle(turn, prompt_node, writing)
    brought = _brought_results(turn, key)
    held = brought.shown.size_bytes if brought is not None else 0
    process = memory.process if turn.state is CallState.OPEN else None
    return PreparedCall(
        call_id=turn.call_id,
        project_id=turn.project_id,
        state=turn.state,
        alias_id=turn.alias_id,
        version_id=turn.version_id,
        engine_url=turn.engine_url,
        address=turn.address,
        trajectory=attribution.trajectory,
        parent=attribution.parent,
        body_hash=request.body_hash,
        retry_count=request.retry_count,
        started_at=turn.started_at,
        issued_ids=[(content_hashes.issued_id_key(id_), kind, choice) for id_, kind, choice in turn.issued_ids]
        if turn.issued_ids
        else (),
        confidence=attribution.confidence,
        tool_requests=_tool_requests(turn, key),
        brought=brought,
        leaf_choice=_leaf_choice(turn),
        nodes=writing.nodes,
        blobs=writing.blobs,
        node_blobs=writing.node_blobs,
        choices=choices,
        leaves=leaves,
        prompt=prompt,
        prompt_hashes=hashes,
        row_middle=middle,
        row_end=(turn.http_status, turn.error, turn.started_at, turn.first_token_at, turn.finished_at, process),
        size_bytes=writing.size_bytes + held + 2 * len(prompt or b"") + sampled_bytes + ROW_BYTES,
        deletions=deletions,
    )


def _tool_requests(turn: RecordedCall, key: bytes) -> list[Row]:
    if turn.state is not CallState.COMPLETE:
        return []
    return [(c.index, *asked) for c in turn.choices for asked in parse_tool_requests(key, c.message)]


def _brought_results(turn: RecordedCall, key: bytes) -> BroughtResults | None:
    """Return the tools' results that the request brings back, if it is certain which answer it continues."""
    where = turn.attribution
    if where.parent is None or where.confidence in (Confidence.HINT, Confidence.AMBIGUOUS):
        return None
    shown = shown_results(key, turn.request.messages)
    return BroughtResults(where.parent, shown, turn.started_at) if shown is not None else None


def _leaf_choice(turn: RecordedCall) -> int | None:
    if turn.state is not CallState.COMPLETE or turn.call_kind is not CallKind.MAIN:
        return None
    if turn.attribution.confidence is Confidence.HINT:  # it may belong to another trajectory: the judge must not see it
        return None
    return min((choice.index for choice in turn.choices), default=None)


def _row_middle(turn: RecordedCall, prompt_node: bytes | None, writing: _RowBuilder) -> Row:
    request, parent, form = turn.request, turn.attribution.parent, turn.request.response_format
    return (
        parent.call_id if parent else None,
        parent.choice if parent else None,
        turn.alias_id,
        turn.version_id,
        turn.base_fingerprint,
        request.model,
        request.dialect,
        request.endpoint,
        request.stream,
        str(turn.state),  # not .value: two calls of Python functions
        None,  # superseded_by
        str(turn.call_kind),
        turn.attribution.source,
        str(turn.attribution.confidence),
        prompt_node,
        writing.blob("tools", request.tools) if request.tools else None,
        writing.blob("response_format", form) if form is not None else None,
        writing.blob("request", request.rest) if request.rest else None,
        request.body_hash,
        request.retry_count,
        json_text(request.sampling),
        json_text(turn.usage) if turn.usage is not None else None,
        _response_meta(turn),
    )


class _RowBuilder:
    """Collects the messages and blobs of one call that are not known to be written."""

    def __init__(self, project_id: str, key: bytes, memory: CaptureCache) -> None:
        self._project_id = project_id
        self._key = key
        self._memory = memory
        self.nodes: list[Row] = []
        self.blobs: list[Row] = []
        self.node_blobs: list[Row] = []
        self.size_bytes = 0

    def messages(self, messages: Sequence[Message], redacted: Collection[int]) -> bytes | None:
        chain = self._memory.take_chain(self._key, messages)
        known = len(chain)
        # a node is written with all its ancestors, so the last known one ends the search
        while known and chain[known - 1] not in self._memory.nodes:
            known -= 1
        for depth in range(known, len(chain)):
            self._node(chain[depth], chain[depth - 1] if depth else None, depth, messages[depth], depth in redacted)
        return chain[-1] if chain else None

    def sampled(self, message: Message | None, parent: bytes | None, depth: int, redacted: bool) -> bytes | None:
        if message is None:
            return None
        node = content_hashes.node_id(self._key, parent, message)
        if node not in self._memory.nodes:
            said = {k: v for k, v in message.items() if k not in content_hashes.ECHO_EXTRAS}
            self._node(node, parent, depth, said, redacted)
        return node

    def blob(self, kind: str, value: object) -> bytes:
        content = content_hashes.canonical_json(value)
        return self._blob(kind, self._memory.content_id(self._key, content), content)

    def _node(self, node: bytes, parent: bytes | None, depth: int, message: Message, redacted: bool) -> None:
        bare, taken = media.extract_media(self._key, message)
        for blob, content in taken.items():
            self._blob("media", blob, content)
            self.node_blobs.append((node, blob))
        text = json_text(bare)
        self.size_bytes += len(text)
        self.nodes.append((node, self._project_id, parent, depth, str(message.get("role", "")), text, redacted))

    def _blob(self, kind: str, blob: bytes, content: bytes) -> bytes:
        if blob not in self._memory.blobs:
            self.size_bytes += len(content)
            self.blobs.append((blob, self._project_id, kind, content))
        return blob


def _choice(
    turn: RecordedCall,
    choice: SampledChoice,
    node: bytes | None,
    prompt: bytes | None,
    hashes: bytes,
    seed: bytes,
    prompt_readable: bool,
) -> tuple[Row, ChoiceLeaf]:
    said = choice.token_ids
    ids = tokens.pack_heard_ids(said) if said is not None else None
    readable = prompt_readable and (said is None or ids is not None)
    logprobs = tokens.pack_logprobs(choice.logprobs) if choice.logprobs is not None else None
    ended = tokens.extend_hashes(prompt, hashes, ids, seed) if prompt is not None and ids else b""
    reason = untrainable_reason(turn, choice, ids_readable=readable)
    row = (
        turn.call_id,
        choice.index,
        node,
        ids,
        logprobs,
        ended,
        choice.finish_reason,
        reason is None,
        str(reason) if reason is not None else None,
    )
    return row, ChoiceLeaf(ParentCall(turn.call_id, choice.index), node, ended)


def _response_meta(turn: RecordedCall) -> str | None:
    beside = {
        str(c.index): extras for c in turn.choices if c.message and (extras := content_hashes.echoed_extras(c.message))
    }
    meta: dict[str, Any] = {**(turn.response_meta or {}), **({CHOICE_EXTRAS: beside} if beside else {})}
    if turn.stated_kind is not None:
        meta[STATED_KIND] = True
    return json_text(meta) if meta else None


def call_row(prepared: PreparedCall, trajectory_id: str, parent_hashes: bytes) -> Row:
    """Return the row of the call, in the order of the schema's columns.

    `parent_hashes` are the block hashes of the parent's prompt and sampled ids. Blocks that the prompt shares with them
    are not stored again.
    """
    length = shared = delta = hashes = None
    if prepared.prompt is not None:
        length = len(prepared.prompt) // tokens.ID_BYTES
        shared = tokens.shared_prefix(prepared.prompt_hashes, parent_hashes) if parent_hashes else 0
        delta = prepared.prompt[shared * tokens.ID_BYTES :]
        hashes = prepared.prompt_hashes[shared // tokens.BLOCK * tokens.HASH_BYTES :]
    head = (prepared.call_id, prepared.project_id, trajectory_id)
    return (*head, *prepared.row_middle, length, shared, delta, hashes, *prepared.row_end)
