"""Events of a campaign or the learner as figures by name. Pure.

Owns: what of an event is sent, under which name (`trainer.trackers.figure_names` tells of each). Refuses: what people
wrote or models said: notes, errors, settings as they were.

Transcripts as trackers show them: those of a step with the highest and lowest reward, those that an alarm names.

Owns: which ones, and how they read. Refuses: being asked without `track.samples`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from recorder.messages.plain_text import message_text
from recorder.queue import campaigns
from recorder.queue.judging import scores
from recorder.queue.judging.scores import REWARD
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.views.campaigns.events import Alarm, CampaignEnded, SettingChanged, StepDone, Validation
from recorder.views.campaigns.measures import compute_measure, count_errored, count_measured, infer_measure
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import TrajectoryView
from trainer.progress import Event
from trainer.trackers.base import TrackerEntry

Figure = tuple[str, float | None]

NOTED, PAUSED = 1.0, 2.0
# Of the trainer's metrics, those with these prefixes have a family of their own; the others are `train/NAME`.
_FAMILIES = ("health", "part", "seconds")


def event_entry(event: Event) -> TrackerEntry | None:
    """What an event comes to; None: nothing of it is sent."""
    if isinstance(event, StepDone):
        # The learner's steps have the trainer's numbers; 0: there was nothing to learn
        return _entry(f"step {event.step}", event.step, _of_step(event)) if event.step else None
    if isinstance(event, Validation):
        key = f"validated {event.step} {_measured(event)} {event.version}"
        return _entry(key, event.step, _of_measure(event))
    if isinstance(event, Alarm):
        level = PAUSED if event.then == "pause" else NOTED
        return _entry(f"alarm {event.step} {event.rule}", event.step, [(f"alarm/{event.rule}", level)])
    if isinstance(event, SettingChanged):
        return _entry(f"changed {event.step} {event.what}", event.step, [("setting_changed", 1.0)])
    if isinstance(event, CampaignEnded):
        return _entry(f"ended {event.steps} {event.reason}", event.steps, _of_end(event))
    return None


def _entry(key: str, step: int, figures: Iterable[Figure]) -> TrackerEntry:
    known = {name: float(value) for name, value in figures if value is not None and math.isfinite(value)}
    return TrackerEntry(" ".join(key.split()), step, known, {})


def _of_step(event: StepDone) -> Iterator[Figure]:
    yield "step/success", event.success
    yield "step/reward", event.reward
    yield from ((f"step/{name}", value) for name, value in _interval(event))
    yield "step/attempts", event.attempts
    yield "step/measured", count_measured(event)
    yield "step/errored", count_errored(event, infer_measure([event]))
    yield "step/trained", event.trained
    yield "step/excluded", sum(event.left_out.values())
    yield "step/failed", event.failed
    yield from ((f"excluded/{code}", count) for code, count in event.left_out.items())
    yield from ((f"seconds/{phase}", spent) for phase, spent in event.seconds.items())
    yield from ((_of_trainer(name), value) for name, value in event.metrics.items())


def _interval(event: StepDone | Validation) -> Iterator[Figure]:
    """The ends of the 95 % interval of the event's measure: of success, else of wins, else of the reward."""
    measure = compute_measure(event, infer_measure([event]))
    if measure is not None and measure.interval is not None:
        name = measure.kind.replace(" ", "_")
        yield f"{name}_low", measure.interval.low
        yield f"{name}_high", measure.interval.high


def _of_trainer(name: str) -> str:
    family, dot, rest = name.partition(".")
    return f"{family}/{rest}" if dot and family in _FAMILIES else f"train/{name}"


def _measured(event: Validation) -> str:
    """Validation is one curve, whatever version serves; a test or a baseline is a model's."""
    if event.baseline and event.part == "val":
        return f"baseline/{event.version}"
    return f"test/{event.version}" if event.part == "test" else "val"


def _of_measure(event: Validation) -> Iterator[Figure]:
    what = _measured(event)
    of_attempts: Mapping[str, float | None] = {
        "success": event.success,
        "reward": event.reward,
        "win_rate": event.win_rate,
        "attempts": event.attempts,
        **dict(_interval(event)),
        "errored": count_errored(event, infer_measure([event])),
        "took_s": event.seconds,
        "adversarial": event.adversarial,
        "adversarial_attempts": event.adversarial_attempts if event.adversarial is not None else None,
        **event.figures,
    }
    yield from ((f"{what}/{name}", value) for name, value in of_attempts.items())


def _of_end(event: CampaignEnded) -> Iterator[Figure]:
    yield "end/success_before", event.success_before
    yield "end/success_after", event.success_after
    yield "end/trained", event.trained
    yield "end/took_s", event.seconds


MOST_CHARS: Final = 20_000  # of one transcript: a tracker shows it in a table


class TranscriptSamples:
    """Of one campaign."""

    def __init__(self, store: Store, campaign_id: str) -> None:
        self._store = store
        self._campaign_id = campaign_id

    async def entry(self, event: Event) -> TrackerEntry | None:
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

    async def _shown(self, key: str, step: int, ids: Mapping[str, str]) -> TrackerEntry | None:
        views = {view.id: view for view in await transcripts.load_trajectories(self._store, list(ids.values()))}
        texts = {f"sample/{name}": conversation_text(views[id_]) for name, id_ in ids.items() if id_ in views}
        return TrackerEntry(key, step, {}, texts) if texts else None


def conversation_text(view: TrajectoryView) -> str:
    """A conversation, one message after another."""
    return f"{view.id}\n\n{_conversation(view.messages)}"[:MOST_CHARS]


def _conversation(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(f"{message.get('role')}: {_said(message)}" for message in messages)


def _said(message: Mapping[str, Any]) -> str:
    text = message_text(message, label=lambda part: json.dumps(part, ensure_ascii=False))
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False)}" if calls else text
