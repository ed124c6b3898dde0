"""The conversations of a report, truncated so that the report stays small.

Owns: how much of a conversation is shown, and its labels. Refuses: the choice of conversations
(`recorder.views.versions.before_after`, and the evidence of alarms), and escaping, which each renderer does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from recorder.queue.campaigns import CampaignView
from recorder.registry.versions import VersionView
from recorder.store.database import Store
from recorder.views.campaigns.events import Alarm
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories
from recorder.views.trajectory_detail.conversation import (
    AnswerFacts,
    ConversationMessage,
    ToolRequest,
    build_conversation,
)
from recorder.views.trajectory_detail.outcome import version_names
from recorder.views.versions.before_after import TrajectoryAttempt, most_improved_scenarios, version_attempts
from trainer.report.shapes import AlarmEvidence, ReportConversation, ReportMessage, ScenarioPair

PAIRS: Final = 3
CHARS: Final = 1500  # of one message
HEAD, TAIL = 4, 12  # messages


async def improved_pairs(
    store: Store, campaign: CampaignView, first: VersionView, best: VersionView
) -> list[ScenarioPair]:
    """The scenarios that improved most from the first version to the best, by both."""
    before, after = [await version_attempts(store, campaign, version.id) for version in (first, best)]
    chosen = most_improved_scenarios(before, after, PAIRS)
    views = await _views(store, [side.trajectory for one in chosen for side in (one.before, one.after)])
    names = {first.id: first.name, best.id: best.name}

    def told(side: TrajectoryAttempt) -> ReportConversation:
        return cut_conversation(views[side.trajectory], names[side.version_id], side.reward)

    return [
        ScenarioPair(one.scenario, one.split, told(one.before), told(one.after), one.rise)
        for one in chosen
        if one.before.trajectory in views and one.after.trajectory in views
    ]


async def alarm_evidence(store: Store, alarms: Collection[Alarm]) -> list[AlarmEvidence]:
    """Alarms; the newest that paused comes with the conversations that it points to."""
    pausing = [alarm for alarm in alarms if alarm.then == "pause"][-1:]
    shown = [str(one["trajectory"]) for alarm in pausing for one in alarm.evidence[:PAIRS] if one.get("trajectory")]
    views = await _views(store, shown)
    names = await version_names(store, {_answered_by(view) for view in views.values()})
    return [AlarmEvidence(alarm, list(_evidence(alarm, views, names)) if alarm in pausing else ()) for alarm in alarms]


def _evidence(
    alarm: Alarm, views: Mapping[str, TrajectoryView], names: Mapping[str, str]
) -> Iterator[ReportConversation]:
    for one in alarm.evidence[:PAIRS]:
        view = views.get(str(one.get("trajectory")))
        if view is not None:
            yield cut_conversation(view, names.get(_answered_by(view), "?"), _number(one.get("reward")))


def _answered_by(view: TrajectoryView) -> str:
    """The id of the version that gave the run's last answer; "" where none did."""
    last = view.main_path[-1][0] if view.main_path else None
    return next((call.version_id or "" for call in view.calls if call.id == last), "")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


async def _views(store: Store, runs: Collection[str]) -> dict[str, TrajectoryView]:
    return {view.id: view for view in await load_trajectories(store, list(dict.fromkeys(runs)))}


def cut_conversation(view: TrajectoryView, version: str, reward: float | None) -> ReportConversation:
    """A run as it is shown: its beginning and its end, and of each message so much."""
    said = [message for turn in build_conversation(view, AnswerFacts()).messages for message in _said(turn)]
    skipped = max(0, len(said) - HEAD - TAIL)
    shown = said if not skipped else [*said[:HEAD], *said[-TAIL:]]
    return ReportConversation(view.id, version, reward, shown, skipped, min(HEAD, len(shown)))


def _said(turn: ConversationMessage) -> Iterator[ReportMessage]:
    if turn.thinking:
        yield _cut(f"{turn.role}, thinking", turn.thinking)
    words = [*turn.texts, *(f"[{kind}]" for kind in turn.media)]
    if words or not turn.tool_calls:
        yield _cut(turn.role, "\n".join(words))
    for asked in turn.tool_calls:
        yield from _asked(asked)


def _asked(asked: ToolRequest) -> Iterator[ReportMessage]:
    yield _cut("asks", f"{asked.name} {asked.arguments}")
    if asked.result is not None:
        yield from _said(asked.result)


def _cut(role: str, text: str) -> ReportMessage:
    return ReportMessage(role, text[:CHARS], max(0, len(text) - CHARS))
