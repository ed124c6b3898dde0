"""The conversations of a report, truncated so that the report stays small.

Owns: how much of a conversation is shown, and its labels. Refuses: the choice of conversations
(`recorder.views.versions.before_after`, and the evidence of alarms), and escaping, which each renderer does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from recorder.queue.campaigns import CampaignView
from recorder.registry.versions import VersionView
from recorder.report.shapes import AlarmEvidence, ReportConversation, ReportMessage, ScenarioPair
from recorder.store.database import Store
from recorder.views.campaigns.events import Alarm
from recorder.views.lists.titles import load_tasks
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

PAIRS: Final = 3
CHARS: Final = 1500  # of one message
HEAD, TAIL = 4, 12  # messages


async def improved_pairs(
    store: Store, campaign: CampaignView, first: VersionView, best: VersionView
) -> list[ScenarioPair]:
    """The scenarios that improved most from the first version to the best, with an attempt by each."""
    before, after = [await version_attempts(store, campaign, version.id) for version in (first, best)]
    chosen = most_improved_scenarios(before, after, PAIRS)
    views = await _views(store, [attempt.trajectory for one in chosen for attempt in (one.before, one.after)])
    names = {first.id: first.name, best.id: best.name}
    tasks = await load_tasks(store, runs=[one.after.trajectory for one in chosen])

    def conversation(attempt: TrajectoryAttempt) -> ReportConversation:
        return cut_conversation(views[attempt.trajectory], names[attempt.version_id], attempt.reward)

    return [
        ScenarioPair(
            one.scenario,
            one.split,
            conversation(one.before),
            conversation(one.after),
            one.rise,
            tasks.get(one.after.trajectory),
        )
        for one in chosen
        if one.before.trajectory in views and one.after.trajectory in views
    ]


async def alarm_evidence(store: Store, alarms: Collection[Alarm]) -> list[AlarmEvidence]:
    """Alarms; the newest one that paused the campaign has the conversations of its evidence."""
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
    """The id of the version that gave the trajectory's last answer; empty if there is none."""
    last = view.main_path[-1][0] if view.main_path else None
    return next((call.version_id or "" for call in view.calls if call.id == last), "")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


async def _views(store: Store, runs: Collection[str]) -> dict[str, TrajectoryView]:
    return {view.id: view for view in await load_trajectories(store, list(dict.fromkeys(runs)))}


def cut_conversation(view: TrajectoryView, version: str, reward: float | None) -> ReportConversation:
    """A trajectory as the report shows it: its first and last messages, each cut to `CHARS`."""
    messages = [one for message in build_conversation(view, AnswerFacts()).messages for one in _entries(message)]
    skipped = max(0, len(messages) - HEAD - TAIL)
    shown = messages if not skipped else [*messages[:HEAD], *messages[-TAIL:]]
    return ReportConversation(view.id, version, reward, shown, skipped, min(HEAD, len(shown)))


def _entries(message: ConversationMessage) -> Iterator[ReportMessage]:
    if message.thinking:
        yield _cut(f"{message.role}, thinking", message.thinking)
    texts = [*message.texts, *(f"[{kind}]" for kind in message.media)]
    if texts or not message.tool_calls:
        yield _cut(message.role, "\n".join(texts))
    for request in message.tool_calls:
        yield from _tool_entries(request)


def _tool_entries(request: ToolRequest) -> Iterator[ReportMessage]:
    yield _cut("asks", f"{request.name} {request.arguments}")
    if request.result is not None:
        yield from _entries(request.result)


def _cut(role: str, text: str) -> ReportMessage:
    return ReportMessage(role, text[:CHARS], max(0, len(text) - CHARS))
