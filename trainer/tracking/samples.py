"""Transcripts as trackers show them: those of a step with the highest and lowest reward, those that an alarm names.

Owns: which ones, and how they read. Refuses: being asked without `track.samples`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from recorder.content.said import message_text
from recorder.learned.campaign_events import Alarm, StepDone
from recorder.reading import transcripts
from recorder.reading.views import TrajectoryView
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.work import campaigns, scores
from recorder.work.scores import REWARD
from trainer.progress import Event
from trainer.tracking.base import Entry

MOST_CHARS: Final = 20_000  # of one transcript: a tracker shows it in a table


class Samples:
    """Of one campaign."""

    def __init__(self, store: Store, campaign_id: str) -> None:
        self._store = store
        self._campaign_id = campaign_id

    async def entry(self, event: Event) -> Entry | None:
        """The transcripts that belong to an event, where some do."""
        if isinstance(event, StepDone):
            return await self._shown(f"samples {event.step}", event.step, await self._ends(event.step))
        if isinstance(event, Alarm):
            named = {f"alarm_{event.rule}_{i}": str(one["trajectory"]) for i, one in enumerate(event.evidence, 1)}
            return await self._shown(f"samples {event.step} {event.rule}", event.step, named)
        return None

    async def _ends(self, step: int) -> dict[str, str]:
        """The attempts of a step with the highest and the lowest reward; one, where all are equal."""
        groups = await campaigns.group_states(self._store, self._campaign_id, step, Purpose.TRAIN)
        found = await scores.get_scores(self._store, [g.current_score_id for g in groups if g.current_score_id])
        parts = [part for score in found.values() for part in score.parts if part.part == REWARD and not part.unasked]
        rewards = {part.trajectory_id: part.value for part in parts if part.value is not None}
        if not rewards:
            return {}
        highest, lowest = max(rewards, key=rewards.__getitem__), min(rewards, key=rewards.__getitem__)
        return {"highest": highest} if highest == lowest else {"highest": highest, "lowest": lowest}

    async def _shown(self, key: str, step: int, ids: Mapping[str, str]) -> Entry | None:
        views = {view.id: view for view in await transcripts.load_trajectories(self._store, list(ids.values()))}
        texts = {f"sample/{name}": as_text(views[id_]) for name, id_ in ids.items() if id_ in views}
        return Entry(key, step, {}, texts) if texts else None


def as_text(view: TrajectoryView) -> str:
    """A conversation, one message after another."""
    return f"{view.id}\n\n{_conversation(view.messages)}"[:MOST_CHARS]


def _conversation(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(f"{message.get('role')}: {_said(message)}" for message in messages)


def _said(message: Mapping[str, Any]) -> str:
    text = message_text(message, label=lambda part: json.dumps(part, ensure_ascii=False))
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False)}" if calls else text
