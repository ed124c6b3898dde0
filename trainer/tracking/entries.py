"""Events of a campaign or the learner as figures by name. Pure.

Owns: what of an event is sent, under which name (`trainer.tracking.names` tells of each). Refuses: what people wrote
or models said: notes, errors, settings as they were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from recorder.learned.campaign_events import Alarm, CampaignEnded, SettingChanged, StepDone, Validation
from recorder.learned.campaign_measures import compute_measure, count_errored, count_measured, infer_measure
from trainer.progress import Event
from trainer.tracking.base import Entry

Figure = tuple[str, float | None]

NOTED, PAUSED = 1.0, 2.0
# Of the trainer's metrics, those with these prefixes have a family of their own; the others are `train/NAME`.
_FAMILIES = ("health", "part", "seconds")


def entry(event: Event) -> Entry | None:
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
        return _entry(f"changed {event.step} {event.what}", event.step, [("changed", 1.0)])
    if isinstance(event, CampaignEnded):
        return _entry(f"ended {event.steps} {event.reason}", event.steps, _of_end(event))
    return None


def _entry(key: str, step: int, figures: Iterable[Figure]) -> Entry:
    known = {name: float(value) for name, value in figures if value is not None and math.isfinite(value)}
    return Entry(" ".join(key.split()), step, known, {})


def _of_step(event: StepDone) -> Iterator[Figure]:
    yield "step/success", event.success
    yield "step/reward", event.reward
    yield from ((f"step/{name}", value) for name, value in _interval(event))
    yield "step/attempts", event.attempts
    yield "step/measured", count_measured(event)
    yield "step/errored", count_errored(event, infer_measure([event]))
    yield "step/trained", event.trained
    yield "step/left_out", sum(event.left_out.values())
    yield "step/failed", event.failed
    yield from ((f"left_out/{code}", count) for code, count in event.left_out.items())
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
