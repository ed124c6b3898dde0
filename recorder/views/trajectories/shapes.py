"""Shapes of trajectories, groups and calls: frozen data for judge, trainer, export, API and pages.

Refuses: queries (`recorder.views.trajectories.transcripts` builds these).
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
    """One sampled choice. `trainable` considers the whole trajectory: superseded and unselected choices are not."""

    index: int
    message: Message | None
    token_ids: array[int] | None  # typecode i; None: unknown, or not requested
    logprobs: array[float] | None  # typecode f, as many as token_ids
    finish_reason: str | None
    trainable: bool
    untrainable_reason: str | None  # a code of `Exclusion`


@dataclass(frozen=True, slots=True)
class CallView:
    """One model request and its response."""

    id: str
    trajectory_id: str
    parent_call_id: str | None
    parent_choice: int | None
    state: CallState
    superseded_by: str | None
    call_kind: CallKind
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
    rest: Mapping[str, Any]  # the request's body without messages, tools and response format
    prompt_token_ids: array[int] | None  # typecode i; None: unknown, or not requested
    choices: Sequence[ChoiceView]
    http_status: int | None
    error: str | None
    retry_count: int
    started_at: float
    first_token_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """One tool call through the gateway, and the model's tool call that it executes, if known."""

    id: str
    trajectory_id: str | None
    call_id: str | None  # the model call that requested it
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
    """Feedback about a trajectory, or about one of its calls."""

    name: str
    value: Any  # number, bool or text
    call_id: str | None
    comment: str | None
    tags: Mapping[str, Any]
    created_at: float


@dataclass(frozen=True, slots=True)
class ScenarioView:
    """A scenario. `id`: the one in the user's file."""

    id: str
    split: str
    input: Any
    reference: Any
    rubric: Any


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Turns of a trajectory outside its conversation: dropped by its agent (main), or of a sub-agent."""

    kind: CallKind
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """The fields that all views of a trajectory take from its row. Times are unix seconds."""

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
    """Build a view from the columns of `trajectories` that have its fields' names; `others` are the other fields."""
    typed = {"state": TrajectoryState(row.state), "purpose": Purpose(row.purpose), "origin": Origin(row.origin)}
    return sql.as_view(cls, row, **typed, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryView(TrajectoryRow):
    """One trajectory of an agent: all its calls, and the path to its last main leaf.

    `messages`: the conversation up to and including the leaf's sampled message, or the prompt of the last main call
    if no call is complete. Trajectories that were split from one call with n > 1 share that call; in each, only its
    own choice is selected.
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
    session: str | None = None  # the client's name of the conversation, if it named no trajectory
    drift_set_at: float | None = None  # since when it is in its alias's drift set, and so never trained on
    tool_calls: Sequence[ToolCallView] = ()  # in time order, including those that execute no known tool call
    histories: Sequence[HistoryView] = ()  # outside `messages`, by their ends, without auxiliary calls

    @property
    def answer(self) -> str | None:
        """Return the text of the last assistant turn on the main path, if any."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.get("role") != "assistant":
            return None
        content = last.get("content")
        return content if isinstance(content, str) else None


@dataclass(frozen=True, slots=True)
class GroupView:
    """Trajectories at the same task."""

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
    baseline: str | None = None  # the baseline of its alias
    alias: str | None = None  # its name
    judge_recipe: str | None = None  # named by its campaign, if any
