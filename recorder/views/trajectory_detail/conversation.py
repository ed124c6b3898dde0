"""A trajectory as a conversation: messages in order, tool results with the calls that requested them, and branches.

Owns: which call sampled a message, which calls are branches of the conversation, and where each branch begins. Pure.
Refuses: queries, shortening long texts, and the outcome (`recorder.views.trajectory_detail.outcome`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recorder.messages import plain_text
from recorder.messages.calls import Message
from recorder.messages.plain_text import ToolCall
from recorder.states import CallKind, CallState, Confidence
from recorder.views.trajectories.shapes import CallView, ChoiceView, ToolCallView, TrajectoryView

SUB_AGENT: Final = "sub-agent"
AUXILIARY: Final = "auxiliary"
RETRY: Final = "retry"  # the client repeated the request, and continued with the other answer
DROPPED: Final = "dropped"  # the agent removed it from its conversation, or continued from another call
_RESULTS: Final = frozenset({"tool", "function"})
At = tuple[str, int]  # call id, choice


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What is known about a trajectory's answers besides their messages."""

    versions: Mapping[str, str] = field(default_factory=dict)  # version id → name
    tokens: Mapping[At, int] = field(default_factory=dict)  # the number of sampled tokens
    skipped: Mapping[At, str] = field(default_factory=dict)  # choices that the trainer skipped, with the reason
    trained: bool = False  # whether a step trained on the trajectory


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """The call that sampled an answer. `why`: why it is not trained on; None if it was or may be."""

    call_id: str
    choice: int
    state: CallState
    kind: CallKind
    version: str | None
    model: str
    tokens: int | None
    started_at: float
    first_token_s: float | None
    seconds: float | None
    finish_reason: str | None
    trained: bool
    why: str | None
    temperature: float
    attribution: str
    confidence: Confidence
    retries: int
    superseded_by: str | None
    http_status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call that a model requested: the result the agent sent, and the gateway's calls for it."""

    id: str | None
    name: str
    arguments: str
    result: ConversationMessage | None = None
    gateway_calls: tuple[ToolCallView, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """One message. `at`: its position in the conversation; `media`: its parts other than text, by type and size."""

    at: int
    role: str
    name: str | None
    texts: tuple[str, ...]
    thinking: str | None = None
    media: tuple[str, ...] = ()
    tool_calls: tuple[ToolRequest, ...] = ()
    gateway_calls: tuple[ToolCallView, ...] = ()  # that match none of `tool_calls` for certain
    sampled: SampledAnswer | None = None
    unselected_choices: tuple[ConversationMessage, ...] = ()  # choices that the agent did not continue with
    branches: tuple[ConversationBranch, ...] = ()  # that begin after this message


@dataclass(frozen=True, slots=True)
class ConversationBranch:
    """Calls that belong together outside the main conversation.

    `kind`: one of `SUB_AGENT`, `AUXILIARY`, `RETRY` and `DROPPED`, or the state of an incomplete call.
    """

    kind: str
    started_at: float
    calls: int
    messages: tuple[ConversationMessage, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A trajectory's conversation. `unplaced_branches`: branches that begin at none of its messages."""

    messages: tuple[ConversationMessage, ...]
    unplaced_branches: tuple[ConversationBranch, ...] = ()
    unplaced_tool_calls: tuple[ToolCallView, ...] = ()  # tool calls that answer no known request

    def answers(self) -> Iterator[SampledAnswer]:
        """Return all sampled answers of the conversation, those of branches included."""
        for turn in (*self.messages, *(turn for branch in self.unplaced_branches for turn in branch.messages)):
            yield from answers_at(turn)

    def count_tool_calls(self) -> int:
        """Return the number of tool calls: those that answers request, and the gateway's that answer no known request.

        Answers that the agent did not continue with, and repeated ones, call nothing.
        """
        branches = [*self.unplaced_branches, *(branch for turn in self.messages for branch in turn.branches)]
        shown = [*self.messages, *(t for branch in branches if branch.kind != RETRY for t in branch.messages)]
        return len(self.unplaced_tool_calls) + sum(_count_tool_calls(turn) for turn in shown)

    def answer(self, call_id: str, choice: int) -> SampledAnswer | None:
        """Return the sampled answer of a call's choice, or None."""
        return next((one for one in self.answers() if (one.call_id, one.choice) == (call_id, choice)), None)


def _count_tool_calls(turn: ConversationMessage) -> int:
    return len(turn.tool_calls) if turn.tool_calls else len(turn.gateway_calls)


def answers_at(turn: ConversationMessage) -> Iterator[SampledAnswer]:
    """Return the sampled answers at a message: its own, its other choices, and those of branches that begin there."""
    if turn.sampled is not None:
        yield turn.sampled
    for inner in (*turn.unselected_choices, *(seen for branch in turn.branches for seen in branch.messages)):
        yield from answers_at(inner)


def build_conversation(view: TrajectoryView, facts: AnswerFacts) -> Conversation:
    """Return the conversation of a trajectory."""
    builder = _ConversationBuilder(view, facts)
    turns = builder.main()
    placed, unplaced = _place_branches(turns, builder.branches())
    unmatched_tools = tuple(one for one in view.tool_calls if one.call_id is None or one.call_id not in builder.by_id)
    return Conversation(
        tuple(replace(t, branches=tuple(placed.get(t.at, ()))) for t in turns), tuple(unplaced), unmatched_tools
    )


def _place_branches(
    turns: Sequence[ConversationMessage], branches: Iterable[tuple[int, ConversationBranch]]
) -> tuple[dict[int, list[ConversationBranch]], list[ConversationBranch]]:
    """Return the branches by the message at which they are shown, and those that begin at none.

    A branch that begins at a tool's result is shown at the message that requested the tool.
    """
    placed: dict[int, list[ConversationBranch]] = {}
    unplaced = []
    for at, branch in branches:
        shown = max((turn.at for turn in turns if turn.at <= at), default=None)
        if shown is None:
            unplaced.append(branch)
        else:
            placed.setdefault(shown, []).append(branch)
    return placed, unplaced


class _ConversationBuilder:
    """Builds the conversation of one trajectory."""

    def __init__(self, view: TrajectoryView, facts: AnswerFacts) -> None:
        self.view = view
        self.facts = facts
        self.by_id = {call.id: call for call in view.calls}
        self.path = [(self.by_id[id_], choice) for id_, choice in view.main_path if id_ in self.by_id]
        self.gateway_calls: dict[At, list[ToolCallView]] = {}
        for one in view.tool_calls:
            if one.call_id is not None:
                self.gateway_calls.setdefault((one.call_id, one.choice or 0), []).append(one)

    def main(self) -> list[ConversationMessage]:
        return self._turns(self.view.messages, self.path)

    def branches(self) -> Iterator[tuple[int, ConversationBranch]]:
        """Return each branch with the position of the message after which it begins."""
        on_path = {call.id for call, _ in self.path}
        off = [call for call in self.view.calls if call.id not in on_path]
        continued = {call.parent_call_id for call in off}
        seen: set[str] = set()
        for leaf in off:
            if leaf.id not in continued:
                chain = self._chain(leaf, on_path)
                yield self._branch(chain, seen)
                seen |= {call.id for call, _ in chain}

    def _chain(self, leaf: CallView, on_path: set[str]) -> list[tuple[CallView, int]]:
        """Return the calls from the main conversation to a leaf, first to last, each with the continued choice."""
        chain, call, choice = [(leaf, 0)], leaf, 0
        while (parent := self.by_id.get(call.parent_call_id or "")) is not None and parent.id not in on_path:
            if any(parent is one for one, _ in chain):
                break
            choice, call = call.parent_choice or 0, parent
            chain.append((call, choice))
        return chain[::-1]

    def _branch(self, chain: Sequence[tuple[CallView, int]], seen: set[str]) -> tuple[int, ConversationBranch]:
        new = [(call, choice) for call, choice in chain if call.id not in seen]
        leaf, choice = chain[-1]
        own = next((c for c in leaf.choices if c.index == choice), None)
        answer = own.message if own is not None else None
        messages = [*leaf.messages, *([answer] if answer is not None else [])]
        shared = _common_prefix(messages, self.view.messages)
        known = max((len(call.messages) + 1 for call, _ in chain if call.id in seen), default=0)
        turns = self._turns(messages, new)[:]
        if answer is None:
            turns.append(_unanswered(len(messages), self._sampled(leaf, own)))
        first = max(min(shared, len(leaf.messages)), known)
        shown = tuple(turn for turn in turns if turn.at >= first)
        return self._place(chain[0][0], shared), ConversationBranch(_kind(leaf), new[0][0].started_at, len(new), shown)

    def _place(self, root: CallView, shared: int) -> int:
        """Return the position after which a branch begins.

        For a call of the main conversation this is the end of the shared messages, for any other call the last answer
        before its start.
        """
        if root.call_kind is CallKind.MAIN and shared:
            return min(shared, len(root.messages)) - 1
        before = [len(call.messages) for call, _ in self.path if call.started_at <= root.started_at]
        first = len(self.path[0][0].messages) - 1 if self.path else len(self.view.messages) - 1
        return max(before, default=first)

    def _turns(self, messages: Sequence[Message], calls: Sequence[tuple[CallView, int]]) -> list[ConversationMessage]:
        sampled = {len(call.messages): (call, choice) for call, choice in calls}
        turns: list[ConversationMessage] = []
        at = 0
        while at < len(messages):
            results = _results_behind(messages, at)
            turn = _turn(messages[at], at)
            if turn.role == "assistant" and at in sampled:
                turn = self._answered(turn, *sampled[at])
            if turn.tool_calls:
                turn, unmatched = _with_results(turn, results)
                turns += [turn, *unmatched]
                at += len(results)
            else:
                turns.append(turn)
            at += 1
        return turns

    def _answered(self, turn: ConversationMessage, call: CallView, choice: int) -> ConversationMessage:
        own = next((c for c in call.choices if c.index == choice), None)
        gateway_calls = self.gateway_calls.get((call.id, choice), [])
        requests = tuple(
            replace(a, gateway_calls=tuple(w for w in gateway_calls if a.id and w.tool_call_id == a.id))
            for a in turn.tool_calls
        )
        joined = {one.id for a in requests for one in a.gateway_calls}
        thinking = turn.thinking or (
            plain_text.thinking_text(own.message) or None if own is not None and own.message else None
        )
        others = [self._other(turn.at, call, c) for c in call.choices if c.index != choice and c.message is not None]
        return replace(
            turn,
            tool_calls=requests,
            thinking=thinking,
            gateway_calls=tuple(one for one in gateway_calls if one.id not in joined),
            sampled=self._sampled(call, own),
            unselected_choices=tuple(others),
        )

    def _other(self, at: int, call: CallView, choice: ChoiceView) -> ConversationMessage:
        return replace(_turn(choice.message or {}, at), sampled=self._sampled(call, choice))

    def _sampled(self, call: CallView, choice: ChoiceView | None) -> SampledAnswer:
        at = (call.id, choice.index if choice is not None else 0)
        why = _why(call, choice) or self.facts.skipped.get(at)
        return SampledAnswer(
            call_id=call.id,
            choice=at[1],
            state=call.state,
            kind=call.call_kind,
            version=self.facts.versions.get(call.version_id or ""),
            model=call.model,
            tokens=self.facts.tokens.get(at),
            started_at=call.started_at,
            first_token_s=_since(call.started_at, call.first_token_at),
            seconds=_since(call.started_at, call.finished_at),
            finish_reason=choice.finish_reason if choice is not None else None,
            trained=self.facts.trained and why is None,
            why=why,
            temperature=call.sampling.temperature,
            attribution=call.attribution_source,
            confidence=call.attribution_confidence,
            retries=call.retry_count,
            superseded_by=call.superseded_by,
            http_status=call.http_status,
            error=call.error,
        )


def _why(call: CallView, choice: ChoiceView | None) -> str | None:
    if choice is None:
        return "not_complete"
    return None if choice.trainable else choice.untrainable_reason


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else max(0.0, end - start)


def _kind(leaf: CallView) -> str:
    if leaf.superseded_by is not None:
        return RETRY
    if leaf.call_kind is not CallKind.MAIN:
        return SUB_AGENT if leaf.call_kind is CallKind.SUB else AUXILIARY
    return DROPPED if leaf.state is CallState.COMPLETE else str(leaf.state)


def _common_prefix(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return the number of equal messages at the beginning of both."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right and left != right:
            break
        count += 1
    return count


def _results_behind(messages: Sequence[Message], at: int) -> list[tuple[int, Message]]:
    """Return the tool results directly after a message, with their positions."""
    found = []
    for place in range(at + 1, len(messages)):
        if messages[place].get("role") not in _RESULTS:
            break
        found.append((place, messages[place]))
    return found


def _with_results(
    turn: ConversationMessage, results: Iterable[tuple[int, Message]]
) -> tuple[ConversationMessage, list[ConversationMessage]]:
    """Add results to the tool calls that requested them; return the others as messages of their own."""
    by_id: dict[str, ConversationMessage] = {}
    unmatched: list[ConversationMessage] = []
    requested_ids = {one.id for one in turn.tool_calls if one.id}
    for at, message in results:
        id_ = message.get("tool_call_id")
        if isinstance(id_, str) and id_ in requested_ids and id_ not in by_id:
            by_id[id_] = _turn(message, at)
        else:
            unmatched.append(_turn(message, at))
    return replace(
        turn, tool_calls=tuple(replace(one, result=by_id.get(one.id or "")) for one in turn.tool_calls)
    ), unmatched


def _unanswered(at: int, sampled: SampledAnswer) -> ConversationMessage:
    """Return the placeholder of an answer that never came."""
    return ConversationMessage(at, "assistant", None, (), sampled=sampled)


def _turn(message: Message, at: int) -> ConversationMessage:
    texts, media = _content(message.get("content"))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        texts = (*texts, refusal)
    name = message.get("name") or message.get("tool_call_id")
    return ConversationMessage(
        at=at,
        role=str(message.get("role", "?")),
        name=str(name) if name else None,
        texts=texts,
        thinking=plain_text.thinking_text(message) or None,
        media=media,
        tool_calls=tuple(_tool_request(one) for one in plain_text.tool_calls(message)),
    )


def _tool_request(one: ToolCall) -> ToolRequest:
    given = one.arguments
    return ToolRequest(one.id, one.name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))


def _content(content: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of a message, and descriptions of its other parts."""
    found = plain_text.content_parts(content)
    texts = tuple(text for text, _ in found if text is not None)
    return texts, tuple(_named(part) for text, part in found if text is None)


def _named(part: object) -> str:
    """Describe a part that is not text by kind and length; its content is never loaded."""
    return f"{plain_text.media_kind(part)}, {len(json.dumps(part, ensure_ascii=False, default=str)):,} characters"
