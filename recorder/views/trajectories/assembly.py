"""Build views from rows: messages from their nodes, prompts from their differences, and what is trainable. Pure.

Owns: building one trajectory from its rows, and its histories: turns that its agent dropped or summarized, and its
sub-agents' turns, each once, ordered by their ends. Refuses: queries (`recorder.views.trajectories.transcripts`), and
how a judge reads histories (`judge.llm.group_text`).
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any

from recorder.errors import CorruptRecord
from recorder.messages import content_hashes, lineage, media, tokens
from recorder.messages.call_tree import CallNode, find_unselected, path_to
from recorder.messages.calls import CHOICE_EXTRAS, STATED_KIND, Message, ParentCall, SamplingParameters, choice_extras
from recorder.messages.trainability import Exclusion
from recorder.states import CallKind, CallState, Confidence, ToolOutcome
from recorder.store import sql
from recorder.views.trajectories.shapes import (
    CallView,
    ChoiceView,
    FeedbackView,
    HistoryView,
    ScenarioView,
    ToolCallView,
    TrajectoryView,
    read_trajectory,
)

Nodes = Mapping[bytes, tuple[bytes | None, Message]]  # node → its parent and its message


@dataclass(frozen=True, slots=True)
class HistoryBranch:
    """One call's conversation, by the node where it ends."""

    end: bytes
    kind: CallKind
    at: float


def other_histories(nodes: Nodes, main: bytes | None, branches: Iterable[HistoryBranch]) -> list[HistoryView]:
    """Return the histories of a trajectory beside the conversation that ends at `main`.

    A history that another continues is omitted. Each begins at its first message that no earlier one has, so the turns
    of an agent with a sliding window appear once.
    """
    earliest: dict[bytes, HistoryBranch] = {}
    for branch in sorted(branches, key=lambda b: (b.at, b.end)):
        earliest.setdefault(branch.end, branch)
    gone_on = _above(nodes, earliest)
    told_by_main = list(_up(nodes, main))
    left = [b for b in earliest.values() if b.end not in gone_on and b.end not in told_by_main]
    if not left:
        return []
    following = _following(nodes, {*gone_on, *told_by_main})
    told = {lineage.form_without_ids(nodes[node][1]) for node in told_by_main}
    found = []
    for branch in left:
        if _sent_back_otherwise(nodes, branch.end, following):
            continue
        messages = [nodes[node][1] for node in _up(nodes, branch.end)][::-1]
        new = list(dropwhile(lambda message: lineage.form_without_ids(message) in told, messages))
        if new:
            told.update(map(lineage.form_without_ids, new))
            found.append(HistoryView(branch.kind, new))
    return found


def _up(nodes: Nodes, node: bytes | None) -> Iterator[bytes]:
    while node is not None:
        yield node
        node = nodes[node][0]


def _above(nodes: Nodes, ends: Iterable[bytes]) -> set[bytes]:
    """Return all ancestors of some end nodes."""
    found: set[bytes] = set()
    for end in ends:
        for node in _up(nodes, nodes[end][0]):
            if node in found:
                break
            found.add(node)
    return found


def _following(nodes: Nodes, these: Iterable[bytes]) -> Mapping[bytes | None, Sequence[Message]]:
    """Return messages by their parent node."""
    found: dict[bytes | None, list[Message]] = defaultdict(list)
    for node in these:
        parent, message = nodes[node]
        found[parent].append(message)
    return found


def _sent_back_otherwise(nodes: Nodes, end: bytes, following: Mapping[bytes | None, Sequence[Message]]) -> bool:
    """Whether the client repeated an answer with other white space, other ids or a note; its copy is shown then."""
    parent, said = nodes[end]
    return any(
        lineage.form_without_ids(said) == lineage.form_without_ids(told)
        or lineage.equals_but_space(said, told)
        or lineage.matched_length(said, told)
        for told in following.get(parent, ())
        if said.get("role") == told.get("role") == "assistant"
    )


Row = Any  # a SQLAlchemy row: its attributes are the table's columns


@dataclass(slots=True)
class ViewRows:
    """The rows that the views of some trajectories need, by id."""

    calls: dict[str, Row] = field(default_factory=dict)
    homes: dict[str, list[Row]] = field(default_factory=dict)  # trajectory → its calls
    choices: dict[str, list[Row]] = field(default_factory=dict)  # by call, in order
    nodes: dict[bytes, tuple[bytes | None, Message]] = field(default_factory=dict)  # parent, message
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    feedback: dict[str, list[FeedbackView]] = field(default_factory=dict)  # by trajectory
    tool_calls: dict[str, list[ToolCallView]] = field(default_factory=dict)  # by trajectory
    scenarios: dict[str, ScenarioView] = field(default_factory=dict)  # by group
    with_tokens: bool = False
    _prompts: dict[str, array[int] | None] = field(default_factory=dict)
    _json: dict[bytes, Any] = field(default_factory=dict)

    def conversation(self, node: bytes | None) -> list[Message]:
        """Return the messages up to and including a node."""
        found: list[Message] = []
        while node is not None:
            node, message = self.nodes[node]
            found.append(message)
        return found[::-1]

    def json_blob(self, blob: bytes | None) -> Any:
        """Return a JSON blob, decoded, or None. Each blob is decoded once: a trajectory's calls share their tools."""
        if blob is None:
            return None
        if blob not in self._json:
            self._json[blob] = json.loads(self.blobs[blob])
        return self._json[blob]

    def prompt_ids(self, call_id: str) -> array[int] | None:
        """Return the exact prompt ids of a call. Raises CorruptRecord if its parent's ids have changed."""
        missing = [call_id]
        while missing:
            call = self.calls[missing[-1]]
            parent = call.parent_call_id if call.prompt_shared else None
            if parent is not None and parent not in self._prompts:
                if parent not in self.calls:
                    raise CorruptRecord(f"call {call.id} shares token ids with call {parent}, which does not exist")
                missing.append(parent)
                continue
            self._prompts[missing.pop()] = self._join(call, parent)
        return self._prompts[call_id]

    def _join(self, call: Row, parent: str | None) -> array[int] | None:
        if call.prompt_len is None:
            return None
        above = self._sequence(parent, call.parent_choice) if parent is not None else None
        return tokens.join_ids(above, call.prompt_shared, call.prompt_delta, call.prompt_len)

    def _sequence(self, call_id: str, index: int) -> array[int]:
        prompt = self._prompts[call_id]
        ids = array("i") if prompt is None else prompt[:]
        for choice in self.choices.get(call_id, ()):
            if choice.index == index and choice.token_ids:
                ids.extend(tokens.unpack_ids(choice.token_ids))
        return ids


def restore_message(stored: Message | str, blobs: Mapping[bytes, bytes]) -> Message:
    """Return a node's message with its media."""
    message = json.loads(stored) if isinstance(stored, str) else stored
    return media.restore_media(message, blobs)


def trajectory_view(row: Row, material: ViewRows) -> TrajectoryView:
    """Build one trajectory: its calls, and the path to its main leaf."""
    leaf = _leaf_of(row, material)
    rows = _calls_of(row, material, leaf)
    nodes = {call.id: _node(call, material) for call in rows}
    path = path_to(nodes, leaf)
    unselected = find_unselected(nodes.values(), path)
    calls = [_call_view(call, material, row.id, leaf, unselected) for call in rows]
    tools, messages, end = _conversation(rows, material, leaf)
    return read_trajectory(
        TrajectoryView,
        row,
        tools=tools,
        messages=messages,
        calls=calls,
        main_path=[(p.call_id, p.choice) for p in path],
        feedback=material.feedback.get(row.id, []),
        scenario=material.scenarios.get(row.group_id),
        tool_calls=material.tool_calls.get(row.id, []),
        histories=other_histories(material.nodes, end, _branches(rows, material, row.id, leaf, unselected)),
    )


def _branches(
    rows: Iterable[Row], material: ViewRows, home: str, leaf: ParentCall | None, unselected: Collection[ParentCall]
) -> Iterator[HistoryBranch]:
    """Yield the branches of a trajectory's agents, without auxiliary, superseded and uncertainly attributed calls."""
    for row in rows:
        sure = row.attribution_confidence != Confidence.HINT
        if sure and row.superseded_by is None and row.turn_kind != CallKind.AUX:
            shared = row.trajectory_id != home
            ends = [
                choice.node_id
                for choice in material.choices.get(row.id, ())
                if not _passed_over(ParentCall(row.id, choice.index), leaf, unselected, shared)
            ]
            answers = [end for end in ends if end is not None and row.state == CallState.COMPLETE]
            for end in answers or [row.prompt_node_id]:
                if end is not None:
                    yield HistoryBranch(end, CallKind(row.turn_kind), row.started_at)


def _passed_over(choice: ParentCall, leaf: ParentCall | None, unselected: Collection[ParentCall], shared: bool) -> bool:
    """Whether the agent continued another choice, or this choice belongs to another trajectory."""
    return choice in unselected or (shared and choice != leaf)


def _leaf_of(row: Row, material: ViewRows) -> ParentCall | None:
    if row.leaf_call_id is None or row.leaf_call_id not in material.calls:
        return None
    return ParentCall(row.leaf_call_id, row.leaf_choice or 0)


def _calls_of(row: Row, material: ViewRows, leaf: ParentCall | None) -> list[Row]:
    """Return its own calls and, for a sibling, the shared call."""
    own = list(material.homes.get(row.id, ()))
    if leaf is not None and material.calls[leaf.call_id].trajectory_id != row.id:
        own.append(material.calls[leaf.call_id])
    return sorted(own, key=lambda c: (c.started_at, c.id))


def _node(call: Row, material: ViewRows) -> CallNode:
    return CallNode(
        id=call.id,
        parent=_parent(call),
        choices=len(material.choices.get(call.id, ())),
        state=CallState(call.state),
        call_kind=CallKind(call.turn_kind),
        superseded=call.superseded_by is not None,
        at=call.started_at,
    )


def _parent(call: Row) -> ParentCall | None:
    return ParentCall(call.parent_call_id, call.parent_choice or 0) if call.parent_call_id is not None else None


def _conversation(
    rows: Sequence[Row], material: ViewRows, leaf: ParentCall | None
) -> tuple[Sequence[Mapping[str, Any]] | None, list[Message], bytes | None]:
    """Return tools, messages and last node of the main path: up to the leaf, else the last main call's prompt."""
    if leaf is None:
        asked = [c for c in rows if c.turn_kind == CallKind.MAIN]
        if not asked:
            return None, [], None
        end = asked[-1].prompt_node_id
        return _tools(asked[-1], material), material.conversation(end), end
    call = material.calls[leaf.call_id]
    messages, end = material.conversation(call.prompt_node_id), call.prompt_node_id
    for choice in material.choices.get(call.id, ()):
        if choice.index == leaf.choice and choice.node_id is not None:
            messages.append(material.nodes[choice.node_id][1])
            end = choice.node_id
    return _tools(call, material), messages, end


def _tools(call: Row, material: ViewRows) -> Sequence[Mapping[str, Any]] | None:
    tools: Sequence[Mapping[str, Any]] | None = material.json_blob(call.tools_blob_id)
    return tools


def call_view(call: Row, material: ViewRows) -> CallView:
    """Build one call by itself. Whether its trajectory selected its choices is not considered."""
    return _call_view(call, material, call.trajectory_id, None, ())


def _call_view(
    call: Row, material: ViewRows, home: str, leaf: ParentCall | None, unselected: Collection[ParentCall]
) -> CallView:
    meta = dict(call.response_meta or {})
    meta.pop(CHOICE_EXTRAS, None)
    meta.pop(STATED_KIND, None)
    shared = call.trajectory_id != home
    choices = []
    for choice in material.choices.get(call.id, ()):
        at = ParentCall(call.id, choice.index)
        reason = _exclusion(call, choice, _passed_over(at, leaf, unselected, shared))
        choices.append(_choice_view(choice, material, choice_extras(call.response_meta, choice.index), reason))
    return sql.as_view(
        CallView,
        call,
        state=CallState(call.state),
        call_kind=CallKind(call.turn_kind),
        attribution_confidence=Confidence(call.attribution_confidence),
        sampling=parse_sampling(call.sampling),
        response_meta=meta or None,
        messages=material.conversation(call.prompt_node_id),
        tools=_tools(call, material),
        response_format=material.json_blob(call.format_blob_id),
        rest=material.json_blob(call.request_blob_id) or {},
        prompt_token_ids=material.prompt_ids(call.id) if material.with_tokens else None,
        choices=choices,
    )


def _exclusion(call: Row, choice: Row, unselected: bool) -> str | None:
    """Return the exclusion that follows from the whole trajectory, else the one stored with the call."""
    if call.superseded_by is not None:
        return Exclusion.SUPERSEDED
    if choice.untrainable_reason is None and unselected:
        return Exclusion.NOT_SELECTED
    reason: str | None = choice.untrainable_reason
    return reason


def tool_call_view(row: Row) -> ToolCallView:
    """Build a tool call from its row."""
    typed = {"join_confidence": Confidence(row.join_confidence), "outcome": ToolOutcome(row.outcome)}
    return sql.as_view(ToolCallView, row, **typed)


def _choice_view(choice: Row, material: ViewRows, extras: Mapping[str, Any], reason: str | None) -> ChoiceView:
    message = None
    if choice.node_id is not None:
        stored = material.nodes[choice.node_id][1]
        message = {k: v for k, v in stored.items() if k not in content_hashes.ECHO_EXTRAS} | dict(extras)
    packed = material.with_tokens
    return ChoiceView(
        index=choice.index,
        message=message,
        token_ids=tokens.unpack_ids(choice.token_ids) if packed and choice.token_ids is not None else None,
        logprobs=tokens.unpack_logprobs(choice.logprobs) if packed and choice.logprobs is not None else None,
        finish_reason=choice.finish_reason,
        trainable=reason is None,
        untrainable_reason=reason,
    )


def parse_sampling(stored: Mapping[str, Any]) -> SamplingParameters:
    """Return the effective sampling parameters from their stored form."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    return SamplingParameters(**values)
