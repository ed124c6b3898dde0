"""What is read back from the store: trajectories, groups and their calls as plain, frozen data.

Owns: the shapes that judge, trainer, export and dashboard see. Refuses: queries
(`recorder.views.trajectories.transcripts` fills these).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Row

from recorder.messages.calls import Message, SamplingParameters
from recorder.states import CallKind, CallState, Confidence, GroupState, Origin, Purpose, ToolOutcome, TrajectoryState
from recorder.store import sql


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """One sampled choice. `trainable` considers the whole trajectory: superseded and unselected ones are not."""

    index: int
    message: Message | None
    token_ids: array[int] | None  # typecode i; None: not known, or not asked for
    logprobs: array[float] | None  # typecode f, as many as token_ids
    finish_reason: str | None
    trainable: bool
    untrainable_reason: str | None  # a `LeftOut` code


@dataclass(frozen=True, slots=True)
class CallView:
    """One model request and its response."""

    id: str
    trajectory_id: str
    parent_call_id: str | None
    parent_choice: int | None
    state: CallState
    superseded_by: str | None
    turn_kind: CallKind
    attribution_source: str
    attribution_confidence: Confidence
    alias_id: str | None
    version_id: str | None
    base_fingerprint: str | None
    model: str
    dialect: str
    endpoint: str
    stream: bool
    sampling: SamplingParameters
    usage: Mapping[str, Any] | None
    response_meta: Mapping[str, Any] | None
    messages: Sequence[Message]  # the prompt, in the chat form
    tools: Sequence[Mapping[str, Any]] | None
    response_format: Mapping[str, Any] | None
    rest: Mapping[str, Any]  # the request's body without the three above
    prompt_token_ids: array[int] | None  # typecode i; None: not known, or not asked for
    choices: Sequence[ChoiceView]
    http_status: int | None
    error: str | None
    retry_count: int
    started_at: float
    first_token_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """One call of a tool through the gateway, and the model's request that it answers, where that is known."""

    id: str
    trajectory_id: str | None
    call_id: str | None  # the model call that asked for it
    choice: int | None
    tool_call_id: str | None
    join_source: str
    join_confidence: Confidence
    server: str | None
    name: str
    tool: str
    arguments: Any
    outcome: ToolOutcome
    result: Any
    error: str | None
    annotations: Mapping[str, Any] | None
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class FeedbackView:
    """What somebody said about a trajectory, or one call of it."""

    name: str
    value: Any  # number, bool or text
    call_id: str | None
    comment: str | None
    tags: Mapping[str, Any]
    created_at: float


@dataclass(frozen=True, slots=True)
class ScenarioView:
    """One task of a campaign. `id` is the user's."""

    id: str
    split: str
    input: Any
    reference: Any
    rubric: Any


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Turns of a run that its conversation does not tell: of its agent (main) and gone since, or of a sub-agent."""

    kind: CallKind
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """What every view of a trajectory has of its row. Times are unix seconds."""

    id: str
    external_id: str | None
    state: TrajectoryState
    end_reason: str | None
    purpose: Purpose
    origin: Origin
    selection: str | None
    mixed: bool
    started_at: float
    last_call_at: float
    ended_at: float | None


T = TypeVar("T", bound=TrajectoryRow)


def read_trajectory(cls: type[T], row: Row[Any], **others: Any) -> T:
    """A trajectory of the columns of `trajectories` that carry the names of its fields; `others` are given by hand."""
    typed = {"state": TrajectoryState(row.state), "purpose": Purpose(row.purpose), "origin": Origin(row.origin)}
    return sql.as_view(cls, row, **typed, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryView(TrajectoryRow):
    """One run of an agent: all its calls, and the path to its last main leaf.

    `messages` is the conversation up to and including the leaf's sampled message; where no call is complete, the
    prompt of the last main call. A sibling choice of a split n>1 call shows the call it shares, its own choice alone
    selected.
    """

    project_id: str
    group_id: str | None
    alias_id: str | None
    continues: str | None
    forked_from_call: str | None
    version_id: str | None
    tags: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]] | None  # of the leaf's call
    messages: Sequence[Message]
    calls: Sequence[CallView]  # all branches, in time order
    main_path: Sequence[tuple[str, int]]  # (call id, choice), root to leaf
    feedback: Sequence[FeedbackView]
    scenario: ScenarioView | None
    session: str | None = None  # what its client called the conversation, where it named no run
    tool_calls: Sequence[ToolCallView] = ()  # in time order, those that answer no known request among them
    histories: Sequence[HistoryView] = ()  # what `messages` does not tell, by their ends; errands are not in it

    @property
    def answer(self) -> str | None:
        """The text of the last assistant turn of the main path, if it has one."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.get("role") != "assistant":
            return None
        content = last.get("content")
        return content if isinstance(content, str) else None


@dataclass(frozen=True, slots=True)
class GroupView:
    """Trajectories that attempted the same task."""

    id: str
    project_id: str
    external_id: str | None
    alias_id: str | None
    state: GroupState
    reason: str | None
    version_id: str | None
    campaign_id: str | None
    declared_size: int | None
    current_score_id: str | None
    scenario: ScenarioView | None
    members: Sequence[TrajectoryView]  # by start
    baseline: str | None = None  # what its alias compares rewards with
    alias: str | None = None  # its name
    reward_recipe: str | None = None  # by which its campaign has it judged; None: it says nothing
