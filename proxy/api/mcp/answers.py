"""Results of the tools of `/hone/mcp`: pages of trajectories and groups, a paged transcript, feedback, moves.

Owns: the shapes, which become the tools' output schemas, and the size limits of texts. Refuses: loading the data
(`proxy.api.mcp.server`).

Texts of models, tools and users are data of a result, cut to a bounded size, and never part of a tool's description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from proxy.api.actions import MovedAlias
from recorder.messages.calls import Message
from recorder.queue.judging.scores import StoredScore
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.views.lists.groups import GroupLine
from recorder.views.lists.paging import Page
from recorder.views.lists.trajectories import TrajectoryLine
from recorder.views.review.shapes import QueuedPair
from recorder.views.trajectories.shapes import CallView, FeedbackView, TrajectoryView
from recorder.views.versions.rewards import VersionReward

MAX_PAGE: Final = 100
MAX_CHARS: Final = 50_000  # of one answer's messages
_MAX_TEXT_CHARS: Final = 2000  # of a judge's explanation or a person's comment

M = TypeVar("M", bound=BaseModel)


class TrajectoryList(BaseModel):
    """A page of trajectories. `next`: pass it as `before` to get the next page; null: this is the last.

    `looked_at`: the page is not full, because the scan stopped after this number of trajectories; there may be more.
    `hidden`: how many more match and have origin shadow, which a list shows only where `origin` says so.
    """

    trajectories: list[TrajectoryLine]
    next: str | None
    looked_at: int | None
    hidden: int


class GroupList(BaseModel):
    """A page of groups. `next`: pass it as `before` to get the next page; null: this is the last.

    `looked_at`: the page is not full, because the scan stopped after this number of groups; there may be more.
    `hidden`: how many more match and are of shadow answers or pairs of a gate.
    """

    groups: list[GroupLine]
    next: str | None
    looked_at: int | None
    hidden: int


class TranscriptMessage(BaseModel):
    """One message. `text`: its content, other parts as JSON. `cut`: `text` is only the beginning."""

    index: int
    role: str
    text: str
    cut: bool


class CallSummary(BaseModel):
    """One call of a trajectory. `why`: why its first choice cannot be trained on."""

    id: str
    state: str
    version_id: str | None
    call_kind: str
    finish_reason: str | None
    trainable: bool
    why: str | None


class ScorePart(BaseModel):
    """A part of a trajectory's score, or feedback about it."""

    name: str
    value: float | bool | str | None
    text: str | None


class Transcript(BaseModel):
    """A trajectory: its conversation from one message on, its newest calls, its score and feedback."""

    id: str
    external_id: str | None
    group_id: str | None
    state: str
    end_reason: str | None
    purpose: str
    tags: dict[str, Any]
    started_at: float
    ended_at: float | None
    messages: list[TranscriptMessage]
    next_message: int | None
    """Pass it as `from_message` to get the next page; null: this is the last."""
    calls: list[CallSummary]
    score: list[ScorePart]
    feedback: list[ScorePart]


class Member(BaseModel):
    """A trajectory of a group, with its reward and the judge's explanation."""

    trajectory: TrajectoryLine
    explanation: str | None


class GroupPage(BaseModel):
    """A group and a page of its members. `next`: pass it as `before` to get the next page; null: this is the last."""

    id: str
    members: list[Member]
    next: str | None
    judge_model: str | None


class ReviewPairs(BaseModel):
    """Pairs of trajectories that need a person's choice, the most important first.

    `disputed`: how many groups wait because judges disagree about them.
    """

    pairs: list[QueuedPair]
    disputed: int


class VersionSummary(BaseModel):
    """One version of an alias. `live`, `canary`: whether it serves agents.

    `reward`: of the trajectories that it sampled. `metrics`: of the training step that made it.
    """

    name: str
    state: str
    reason: str | None
    live: bool
    canary: bool
    verified: str | None
    reward: VersionReward | None
    metrics: dict[str, Any]
    created_at: float


class VersionPage(BaseModel):
    """A page of versions, newest first. `next`: pass it as `offset`; null: this is the last page."""

    versions: list[VersionSummary]
    next: int | None


class RecordedFeedback(BaseModel):
    """Stored feedback."""

    feedback_id: str
    trajectory_id: str


class AliasMove(BaseModel):
    """The live version after a move, and the previous one."""

    alias: str
    live: str
    previous: str | None


def next_page(items: Sequence[Any], limit: int, offset: int) -> int | None:
    """Return the offset of the next page, or None. `items` holds one more than `limit` where there is a next page."""
    return offset + limit if len(items) > limit else None


def build_transcript(view: TrajectoryView, score: StoredScore | None, first: int, max_chars: int) -> Transcript:
    """Build a trajectory's transcript from the message `first` on, at most `max_chars` of text."""
    messages, following = _message_page(view.messages, first, max_chars)
    parts = score.parts_of(view.id) if score else []
    return _result_of(
        Transcript,
        view,
        messages=messages,
        next_message=following,
        calls=[_call_summary(call) for call in view.calls[-MAX_PAGE:]],
        score=[ScorePart(name=p.part, value=p.value, text=_cut(p.explanation)) for p in parts],
        feedback=[_feedback_part(f) for f in view.feedback[-MAX_PAGE:]],
    )


def build_group_page(group_id: str, page: Page[TrajectoryLine], score: StoredScore | None) -> GroupPage:
    """Build a page of a group's members, each with the judge's explanation."""
    explanations = {p.trajectory_id: p.explanation for p in score.parts if p.explanation} if score else {}
    members = [Member(trajectory=line, explanation=_cut(explanations.get(line.id))) for line in page.lines]
    judge = score.judge_model if score else None
    return GroupPage(id=group_id, members=members, next=page.next, judge_model=judge)


def summarize_version(version: VersionView, alias: AliasView, reward: VersionReward | None) -> VersionSummary:
    """Summarize a version of an alias, with its reward if it has one."""
    return _result_of(
        VersionSummary,
        version,
        live=version.id == alias.live_version_id,
        canary=version.id == alias.canary_version_id,
        reward=reward,
    )


def describe_move(moved: MovedAlias) -> AliasMove:
    """Describe the move of an alias."""
    return AliasMove(alias=moved.live.alias_name, live=moved.live.name, previous=moved.previous)


def _result_of(model: type[M], source: object, **others: Any) -> M:
    """Build a result from the attributes of `source` that have the names of its fields; `others` override them."""
    named = {name: getattr(source, name) for name in model.model_fields if name not in others}
    return model(**named, **others)


def _message_page(
    messages: Sequence[Message], first: int, max_chars: int
) -> tuple[list[TranscriptMessage], int | None]:
    """Return the messages from `first` on, up to `max_chars`, and the index of the next. A longer first message
    is cut.
    """
    page: list[TranscriptMessage] = []
    left = max_chars
    for index in range(first, len(messages)):
        text = _text(messages[index])
        if page and (len(text) > left or len(page) == MAX_PAGE):
            return page, index
        message = TranscriptMessage(
            index=index, role=str(messages[index].get("role", "")), text=text[:left], cut=len(text) > left
        )
        page.append(message)
        left -= len(message.text)
    return page, None


def _text(message: Message) -> str:
    content = message.get("content")
    rest = {k: v for k, v in message.items() if k not in ("role", "content") and v is not None}
    parts = [content] if isinstance(content, str) else [_json(content)] if content else []
    return "\n".join([*parts, _json(rest)] if rest else parts)


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates
        return repr(value)


def _call_summary(call: CallView) -> CallSummary:
    first = call.choices[0] if call.choices else None
    return _result_of(
        CallSummary,
        call,
        finish_reason=first.finish_reason if first else None,
        trainable=first is not None and first.trainable,
        why=first.untrainable_reason if first else None,
    )


def _feedback_part(feedback: FeedbackView) -> ScorePart:
    value = _cut(feedback.value) if isinstance(feedback.value, str) else feedback.value
    return ScorePart(name=feedback.name, value=value, text=_cut(feedback.comment))


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_TEXT_CHARS else text[: _MAX_TEXT_CHARS - 1] + "…"
