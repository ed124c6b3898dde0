"""What the tools of `/hone/mcp` answer with: pages of runs and groups, a transcript in parts, what was noted or moved.

Owns: the shapes, which MCP tells its clients of, and how much of a text is shown. Refuses: asking for what is shown
(`proxy.api.mcp_server`).

What models, tools and users wrote is data of an answer, cut to a bounded size, and never a part of what the server says
of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from proxy.api.actions import MovedAlias
from recorder.messages.calls import Message
from recorder.queue.judging.scores import StoredScore
from recorder.registry.versions import VersionView
from recorder.views.lists.groups import GroupLine
from recorder.views.lists.paging import Page
from recorder.views.lists.trajectories import TrajectoryLine
from recorder.views.review.shapes import QueuedPair
from recorder.views.trajectories.shapes import CallView, FeedbackView, TrajectoryView

MAX_PAGE: Final = 100
MAX_CHARS: Final = 50_000  # of one answer's messages
_MAX_TEXT_CHARS: Final = 2000  # of what a judge or a person said

M = TypeVar("M", bound=BaseModel)


class TrajectoryList(BaseModel):
    """A page of runs. `next` is what the following page begins before; null: there is none.

    `looked_at`: the page is not full, because so many runs were looked at for it, and there are more.
    """

    runs: list[TrajectoryLine]
    next: str | None
    looked_at: int | None


class GroupList(BaseModel):
    """A page of groups. `next` is what the following page begins before; null: there is none.

    `looked_at`: the page is not full, because so many groups were looked at for it, and there are more.
    """

    groups: list[GroupLine]
    next: str | None
    looked_at: int | None


class TranscriptMessage(BaseModel):
    """One message. `text` is its content, and what of it is not text as JSON; `cut`: it is longer than is shown."""

    index: int
    role: str
    text: str
    cut: bool


class CallSummary(BaseModel):
    """One call of a run. `why`: why its first choice may not be trained on."""

    id: str
    state: str
    version_id: str | None
    turn_kind: str
    finish_reason: str | None
    trainable: bool
    why: str | None


class ScorePart(BaseModel):
    """A part of a run's score, or feedback about it."""

    name: str
    value: float | bool | str | None
    text: str | None


class Transcript(BaseModel):
    """A run: its conversation from one message on, its newest calls, its score and feedback."""

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
    """The message that the next page begins with; null: these were the last."""
    calls: list[CallSummary]
    score: list[ScorePart]
    feedback: list[ScorePart]


class Member(BaseModel):
    """A run of a group, with its reward and what the judge said of it."""

    run: TrajectoryLine
    explanation: str | None


class GroupPage(BaseModel):
    """A group and a page of its members. `next` is what the following page begins before; null: there is none."""

    id: str
    members: list[Member]
    next: str | None
    judge_model: str | None


class ReviewPairs(BaseModel):
    """Pairs of runs that wait for a person's choice, what matters most first.

    `disputed`: how many groups wait because judges disagree about them.
    """

    pairs: list[QueuedPair]
    disputed: int


class VersionSummary(BaseModel):
    """One version of an alias. `live` and `canary`: whether agents get it."""

    name: str
    state: str
    reason: str | None
    live: bool
    canary: bool
    verified: str | None
    metrics: dict[str, Any]
    created_at: float


class VersionPage(BaseModel):
    """Versions by number, newest first."""

    versions: list[VersionSummary]
    next: int | None


class RecordedFeedback(BaseModel):
    """Feedback that was written."""

    feedback_id: str
    trajectory_id: str


class AliasMove(BaseModel):
    """What is live now, and what was left."""

    alias: str
    live: str
    left: str | None


def next_page(found: Sequence[Any], limit: int, offset: int) -> int | None:
    """The offset of the page after this one, where one more than `limit` was asked for and came."""
    return offset + limit if len(found) > limit else None


def build_transcript(view: TrajectoryView, score: StoredScore | None, first: int, max_chars: int) -> Transcript:
    """A run from its message `first` on, until `max_chars` are full."""
    messages, following = _said(view.messages, first, max_chars)
    parts = score.parts_of(view.id) if score else []
    return _shown(
        Transcript,
        view,
        messages=messages,
        next_message=following,
        calls=[_asked(call) for call in view.calls[-MAX_PAGE:]],
        score=[ScorePart(name=p.part, value=p.value, text=_cut(p.explanation)) for p in parts],
        feedback=[_opinion(f) for f in view.feedback[-MAX_PAGE:]],
    )


def build_group_page(group_id: str, found: Page[TrajectoryLine], score: StoredScore | None) -> GroupPage:
    """A page of a group's members, with what the judge said of each."""
    said = {p.trajectory_id: p.explanation for p in score.parts if p.explanation} if score else {}
    members = [Member(run=line, explanation=_cut(said.get(line.id))) for line in found.lines]
    judge = score.judge_model if score else None
    return GroupPage(id=group_id, members=members, next=found.next, judge_model=judge)


def summarize_version(version: VersionView, live: str | None, canary: str | None) -> VersionSummary:
    """A version of an alias whose live and canary versions have these ids."""
    return _shown(VersionSummary, version, live=version.id == live, canary=version.id == canary)


def describe_move(moved: MovedAlias) -> AliasMove:
    """An alias that points elsewhere now."""
    return AliasMove(alias=moved.live.alias_name, live=moved.live.name, left=moved.left)


def _shown(model: type[M], source: object, **others: Any) -> M:
    """An answer of the source's attributes that carry the names of its fields; `others` are given by hand."""
    named = {name: getattr(source, name) for name in model.model_fields if name not in others}
    return model(**named, **others)


def _said(messages: Sequence[Message], first: int, max_chars: int) -> tuple[list[TranscriptMessage], int | None]:
    """Messages from `first` on, until `max_chars` are full, and the next one's index. One too long alone is cut."""
    shown: list[TranscriptMessage] = []
    left = max_chars
    for index in range(first, len(messages)):
        text = _text(messages[index])
        if shown and (len(text) > left or len(shown) == MAX_PAGE):
            return shown, index
        said = TranscriptMessage(
            index=index, role=str(messages[index].get("role", "")), text=text[:left], cut=len(text) > left
        )
        shown.append(said)
        left -= len(said.text)
    return shown, None


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


def _asked(call: CallView) -> CallSummary:
    first = call.choices[0] if call.choices else None
    return _shown(
        CallSummary,
        call,
        finish_reason=first.finish_reason if first else None,
        trainable=first is not None and first.trainable,
        why=first.untrainable_reason if first else None,
    )


def _opinion(said: FeedbackView) -> ScorePart:
    value = _cut(said.value) if isinstance(said.value, str) else said.value
    return ScorePart(name=said.name, value=value, text=_cut(said.comment))


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_TEXT_CHARS else text[: _MAX_TEXT_CHARS - 1] + "…"
