"""A run as a conversation: its turns in order, what tools answered beside what asked for it, branches where they begin.

Owns: which message is whose answer, which calls are branches of the conversation and where each begins. Refuses:
queries, cutting long texts, and what became of the run (`recorder.views.trajectory_detail.outcome`). Pure.
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
RETRY: Final = "retry"  # the client asked once more, and went on with the other answer
DROPPED: Final = "dropped"  # the agent cut it out of its conversation, or went another way
_RESULTS: Final = frozenset({"tool", "function"})
At = tuple[str, int]  # call id, choice


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What is known of a run's answers beside the conversation."""

    versions: Mapping[str, str] = field(default_factory=dict)  # version id → name
    tokens: Mapping[At, int] = field(default_factory=dict)  # how many were sampled
    skipped: Mapping[At, str] = field(default_factory=dict)  # what a trainer passed over in a run it trained on
    trained: bool = False  # whether a step was trained on the run


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """Where an answer came from. `why`: the code for not being trained on; None where it was, or may be."""

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
    """A tool that a model asked for: what it was told as the result, and the calls that the gateway saw for it."""

    id: str | None
    name: str
    arguments: str
    result: ConversationMessage | None = None
    gateway_calls: tuple[ToolCallView, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """One message. `at`: its place in its conversation; `media`: what it shows beside text, by type and size."""

    at: int
    role: str
    name: str | None
    texts: tuple[str, ...]
    thinking: str | None = None
    media: tuple[str, ...] = ()
    tool_calls: tuple[ToolRequest, ...] = ()
    gateway_calls: tuple[ToolCallView, ...] = ()  # of the gateway's, which answer none of `asked` for sure
    sampled: SampledAnswer | None = None
    unselected_choices: tuple[ConversationMessage, ...] = ()  # the choices that the agent did not go on with
    branches: tuple[ConversationBranch, ...] = ()  # what begins behind this turn


@dataclass(frozen=True, slots=True)
class ConversationBranch:
    """Calls beside the conversation that belong together. `kind`: see the words above, or a call's state."""

    kind: str
    started_at: float
    calls: int
    messages: tuple[ConversationMessage, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A run's conversation; `apart` is what has no turn to begin behind."""

    messages: tuple[ConversationMessage, ...]
    unplaced_branches: tuple[ConversationBranch, ...] = ()
    unplaced_tool_calls: tuple[ToolCallView, ...] = ()  # tool calls that answer no known request

    def answers(self) -> Iterator[SampledAnswer]:
        """Where each answer came from, wherever it is told."""
        for turn in (*self.messages, *(turn for branch in self.unplaced_branches for turn in branch.messages)):
            yield from answers_at(turn)

    def answer(self, call_id: str, choice: int) -> SampledAnswer | None:
        """Where one answer came from."""
        return next((one for one in self.answers() if (one.call_id, one.choice) == (call_id, choice)), None)


def answers_at(turn: ConversationMessage) -> Iterator[SampledAnswer]:
    """The answers that are told at a turn: its own, those beside it, those of branches that begin behind it."""
    if turn.sampled is not None:
        yield turn.sampled
    for inner in (*turn.unselected_choices, *(told for branch in turn.branches for told in branch.messages)):
        yield from answers_at(inner)


def build_conversation(view: TrajectoryView, facts: AnswerFacts) -> Conversation:
    """The conversation of a run."""
    teller = _ConversationBuilder(view, facts)
    turns = teller.main()
    placed, apart = _placed(turns, teller.branches())
    loose = tuple(one for one in view.tool_calls if one.call_id is None or one.call_id not in teller.by_id)
    return Conversation(tuple(replace(t, branches=tuple(placed.get(t.at, ()))) for t in turns), tuple(apart), loose)


def _placed(
    turns: Sequence[ConversationMessage], branches: Iterable[tuple[int, ConversationBranch]]
) -> tuple[dict[int, list[ConversationBranch]], list[ConversationBranch]]:
    """Branches by the turn that is shown where they begin: a tool's result is shown with what asked for it."""
    placed: dict[int, list[ConversationBranch]] = {}
    apart = []
    for at, branch in branches:
        shown = max((turn.at for turn in turns if turn.at <= at), default=None)
        if shown is None:
            apart.append(branch)
        else:
            placed.setdefault(shown, []).append(branch)
    return placed, apart


class _ConversationBuilder:
    """One run, on its way to being told."""

    def __init__(self, view: TrajectoryView, facts: AnswerFacts) -> None:
        self.view = view
        self.facts = facts
        self.by_id = {call.id: call for call in view.calls}
        self.path = [(self.by_id[id_], choice) for id_, choice in view.main_path if id_ in self.by_id]
        self.work: dict[At, list[ToolCallView]] = {}
        for one in view.tool_calls:
            if one.call_id is not None:
                self.work.setdefault((one.call_id, one.choice or 0), []).append(one)

    def main(self) -> list[ConversationMessage]:
        return self._turns(self.view.messages, self.path)

    def branches(self) -> Iterator[tuple[int, ConversationBranch]]:
        """Each branch with the place in the conversation that it begins behind."""
        on_path = {call.id for call, _ in self.path}
        off = [call for call in self.view.calls if call.id not in on_path]
        gone_on = {call.parent_call_id for call in off}
        told: set[str] = set()
        for leaf in off:
            if leaf.id not in gone_on:
                chain = self._chain(leaf, on_path)
                yield self._branch(chain, told)
                told |= {call.id for call, _ in chain}

    def _chain(self, leaf: CallView, on_path: set[str]) -> list[tuple[CallView, int]]:
        """A leaf and what it goes on from, back to the conversation: first to last, with the choice gone on with."""
        chain, call, choice = [(leaf, 0)], leaf, 0
        while (parent := self.by_id.get(call.parent_call_id or "")) is not None and parent.id not in on_path:
            if any(parent is one for one, _ in chain):
                break
            choice, call = call.parent_choice or 0, parent
            chain.append((call, choice))
        return chain[::-1]

    def _branch(self, chain: Sequence[tuple[CallView, int]], told: set[str]) -> tuple[int, ConversationBranch]:
        new = [(call, choice) for call, choice in chain if call.id not in told]
        leaf, choice = chain[-1]
        own = next((c for c in leaf.choices if c.index == choice), None)
        answer = own.message if own is not None else None
        messages = [*leaf.messages, *([answer] if answer is not None else [])]
        shared = _common(messages, self.view.messages)
        known = max((len(call.messages) + 1 for call, _ in chain if call.id in told), default=0)
        turns = self._turns(messages, new)[:]
        if answer is None:
            turns.append(_unanswered(len(messages), self._sampled(leaf, own)))
        first = max(min(shared, len(leaf.messages)), known)
        shown = tuple(turn for turn in turns if turn.at >= first)
        return self._place(chain[0][0], shared), ConversationBranch(_kind(leaf), new[0][0].started_at, len(new), shown)

    def _place(self, root: CallView, shared: int) -> int:
        """Behind what it was asked after, where that is the conversation; else behind what was answered before it."""
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
                turn, left = _with_results(turn, results)
                turns += [turn, *left]
                at += len(results)
            else:
                turns.append(turn)
            at += 1
        return turns

    def _answered(self, turn: ConversationMessage, call: CallView, choice: int) -> ConversationMessage:
        own = next((c for c in call.choices if c.index == choice), None)
        work = self.work.get((call.id, choice), [])
        asked = tuple(
            replace(a, gateway_calls=tuple(w for w in work if a.id and w.tool_call_id == a.id)) for a in turn.tool_calls
        )
        joined = {one.id for a in asked for one in a.gateway_calls}
        thinking = turn.thinking or (
            plain_text.thinking_text(own.message) or None if own is not None and own.message else None
        )
        others = [self._other(turn.at, call, c) for c in call.choices if c.index != choice and c.message is not None]
        return replace(
            turn,
            tool_calls=asked,
            thinking=thinking,
            gateway_calls=tuple(one for one in work if one.id not in joined),
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


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right and left != right:
            break
        count += 1
    return count


def _results_behind(messages: Sequence[Message], at: int) -> list[tuple[int, Message]]:
    """The tools' results right behind a message, with their places."""
    found = []
    for place in range(at + 1, len(messages)):
        if messages[place].get("role") not in _RESULTS:
            break
        found.append((place, messages[place]))
    return found


def _with_results(
    turn: ConversationMessage, results: Iterable[tuple[int, Message]]
) -> tuple[ConversationMessage, list[ConversationMessage]]:
    """A turn with the results of what it asked for, and those that it did not ask for as turns of their own."""
    by_id: dict[str, ConversationMessage] = {}
    left: list[ConversationMessage] = []
    wanted = {one.id for one in turn.tool_calls if one.id}
    for at, message in results:
        id_ = message.get("tool_call_id")
        if isinstance(id_, str) and id_ in wanted and id_ not in by_id:
            by_id[id_] = _turn(message, at)
        else:
            left.append(_turn(message, at))
    return replace(
        turn, tool_calls=tuple(replace(one, result=by_id.get(one.id or "")) for one in turn.tool_calls)
    ), left


def _unanswered(at: int, sampled: SampledAnswer) -> ConversationMessage:
    """Where an answer should be, and none came."""
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
        tool_calls=tuple(_asked(one) for one in plain_text.tool_calls(message)),
    )


def _asked(one: ToolCall) -> ToolRequest:
    given = one.arguments
    return ToolRequest(one.id, one.name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))


def _content(content: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of a message, and what else it shows by name."""
    found = plain_text.content_parts(content)
    texts = tuple(text for text, _ in found if text is not None)
    return texts, tuple(_named(part) for text, part in found if text is None)


def _named(part: object) -> str:
    """What a part is that is no text, and how long: it is never loaded."""
    return f"{plain_text.media_kind(part)}, {len(json.dumps(part, ensure_ascii=False, default=str)):,} characters"
