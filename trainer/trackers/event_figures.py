"""Events of a campaign or the learner as trackers receive them: figures by name, and transcripts.

Owns: which figures of an event are sent; the table of all figures, from which docs/metrics.md is made (a test compares
the two both ways; in a name, a word in capitals stands for a name that is not known here); and which transcripts belong
to an event: those of a step with the highest and the lowest reward, and those that an alarm names. Refuses: texts by
people or models in figures (notes, errors, settings), and deciding whether transcripts are sent (`track.samples`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_FAMILIES = ("drift", "health", "objective", "part", "seconds")


def event_entry(event: Event) -> TrackerEntry | None:
    """The figures of an event; None: nothing is sent."""
    if isinstance(event, StepDone):
        # The learner's steps have the trainer's numbers; 0: there was nothing to train on
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
    """The first part of the names: one curve for all validations, one for each model of a test or baseline."""
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
    """The transcripts that belong to the events of one campaign."""

    def __init__(self, store: Store, campaign_id: str) -> None:
        self._store = store
        self._campaign_id = campaign_id

    async def entry(self, event: Event) -> TrackerEntry | None:
        """The transcripts that belong to an event; None: there are none."""
        if isinstance(event, StepDone):
            return await self._shown(f"samples {event.step}", event.step, await self._ends(event.step))
        if isinstance(event, Alarm):
            named = {f"alarm_{event.rule}_{i}": str(one["trajectory"]) for i, one in enumerate(event.evidence, 1)}
            return await self._shown(f"samples {event.step} {event.rule}", event.step, named)
        return None

    async def _ends(self, step: int) -> dict[str, str]:
        """The attempts of a step with the highest and the lowest reward; one attempt if all are equal."""
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
    return "\n\n".join(f"{message.get('role')}: {_content(message)}" for message in messages)


def _content(message: Mapping[str, Any]) -> str:
    text = message_text(message, label=lambda part: json.dumps(part, ensure_ascii=False))
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False)}" if calls else text


SHARE: Final = "0 to 1"
_PLACE: Final = re.compile(r"[A-Z_]{4,}")


@dataclass(frozen=True, slots=True)
class FigureName:
    """One figure, or one for each name that the capitals in `pattern` stand for."""

    pattern: str
    unit: str
    when: str
    what: str

    def fits(self, name: str) -> bool:
        """Whether it is the name of this figure."""
        parts = (re.escape(part) for part in _PLACE.split(self.pattern))
        return re.fullmatch(".+".join(parts), name) is not None


def figure_names() -> Iterator[FigureName]:
    """All figures, in the order of docs/metrics.md."""
    yield from _STEP
    yield from _OBJECTIVES
    yield from _TRAIN
    yield from _DRIFT
    yield from _HEALTH
    yield from _measures("val", "each validation", "of the version in service")
    yield from _measures("baseline/MODEL", "before step 1", "of a model of campaign.baselines")
    yield from _measures(
        "test/MODEL", "at the end", "on the test part: the version in service, the base and each baseline"
    )
    yield from _END


_EACH, _MADE = "each step", "each step that made a version"
_FEW_FRESH: Final = "each step with fewer than 64 fresh tokens whose parent has a probe"
_AHEAD: Final = "each step of a campaign that samples ahead (campaign.max_lag)"

_STEP: Final = (
    FigureName("step/success", SHARE, _EACH, "successes among its measured attempts, where success is measured"),
    FigureName("step/success_low", SHARE, _EACH, "lower end of its 95 % interval"),
    FigureName("step/success_high", SHARE, _EACH, "upper end of its 95 % interval"),
    FigureName("step/reward", "reward", _EACH, "mean reward of its attempts"),
    FigureName("step/reward_low", "reward", _EACH, "lower end of its 95 % interval, if success is not measured"),
    FigureName("step/reward_high", "reward", _EACH, "upper end of its 95 % interval, if success is not measured"),
    FigureName("step/attempts", "attempts", _EACH, "attempts of the step"),
    FigureName("step/measured", "attempts", _EACH, "attempts that ended by themselves and were measured"),
    FigureName("step/errored", "attempts", _EACH, "errored attempts; no mean counts them"),
    FigureName("step/trained", "attempts", _EACH, "attempts trained on"),
    FigureName("step/excluded", "attempts", _EACH, "attempts not trained on"),
    FigureName("step/failed", "0 or 1", _EACH, "1: the step failed by a fault, not because there was nothing to learn"),
    FigureName("excluded/CODE", "attempts", _EACH, "attempts not trained on, by reason (docs/reasons.md)"),
    FigureName(
        "seconds/PHASE", "seconds", _EACH, "time of sampling, judging, training, swapping, and of training's parts"
    ),
    FigureName(
        "part/NAME", "reward", _EACH, "mean of a part of the reward, or of a function's extra number (NAME.EXTRA)"
    ),
)
_MIXED: Final = "each step that made a version, with more objectives than group"
_TAUGHT: Final = "each step with hindsight or distill that made a version"
_OBJECTIVES: Final = (
    FigureName("objective/NAME.tokens", "tokens", _MIXED, "tokens that the objective trained"),
    FigureName("objective/NAME.loss", "none", _MIXED, "its part of the loss, its weight included"),
    FigureName("objective/NAME.gradient_share", SHARE, _MIXED, "its share of the gradient's norm, on a sample"),
    FigureName("objective/prefer.margin", "none", _MIXED, "mean margin of the step's pairs before the update"),
    FigureName("objective/prefer.accuracy", SHARE, _MIXED, "share of the pairs with a margin above 0"),
    FigureName("objective/NAME.turns", "turns", _TAUGHT, "answers with a lesson"),
    FigureName("objective/NAME.excluded", "turns", _TAUGHT, "answers that it could not use (docs/reasons.md)"),
    FigureName("objective/NAME.advantage", "nats", _TAUGHT, "mean advantage of a token by its teacher"),
    FigureName("objective/NAME.clipped", SHARE, _TAUGHT, "tokens whose advantage its clip bounds"),
)
_TRAIN: Final = tuple(
    FigureName(f"train/{name}", unit, when, what)
    for name, unit, when, what in (
        ("reward_mean", "reward", _EACH, "mean of the rewards that counted"),
        ("reward_std", "reward", _EACH, "their standard deviation"),
        ("groups", "groups", _EACH, "groups of the step"),
        ("groups_trained", "groups", _EACH, "groups trained on"),
        ("follow_up_share", SHARE, _EACH, "largest share of one key's follow-ups, if some were trained on"),
        ("follow_ups_waiting", "trajectories", _EACH, "trajectories that wait for a later step because of it"),
        ("pair_weight", SHARE, _EACH, "mean weight of groups of two whose judge was calibrated (`hone calibrate`)"),
        ("credited_turns", "turns", _EACH, "turns whose own value changed their advantage, with trainer.turn_weight"),
        ("demonstrations", "demonstrations", _MADE, "those that the step imitated, if it imitates"),
        ("pairs", "pairs", _MADE, "those that the step was trained on, with the objective prefer"),
        ("rehearsal", "trajectories", _MADE, "earlier ones that the step repeated, with trainer.rehearsal"),
        ("rendered_tokens", "tokens", _MADE, "tokens of demonstrations and pairs that are not recorded ids, if any"),
        ("loss", "none", _MADE, "the loss"),
        ("kl_engine", "nats", _MADE, "KL(engine ‖ trainer) before the update: their numerical difference"),
        ("kl_base", "nats", _MADE, "KL to the base, if trainer.kl_coef is above 0"),
        ("logprob_gap", "nats", _MADE, "mean difference between the engine's and the trainer's logprobs"),
        ("logprob_gap_max", "nats", _MADE, "the largest of these"),
        ("logprob_gap_bound", "nats", _MADE, "the largest mean difference that is accepted, if the two were compared"),
        (
            "engine_mismatch",
            SHARE,
            _MADE,
            "masked turns among those that the parent version sampled (trainer.mask_ratio)",
        ),
        ("copy_gap", "nats", _MADE, "the same after a fixed text, of a copy (trainer.quantize) and the base"),
        ("fresh_tokens", "tokens", _MADE, "tokens that the parent version sampled: only they are compared"),
        ("probe_gap", "nats", _FEW_FRESH, "difference between engine and trainer over the parent's probe"),
        ("probe_gap_bound", "nats", _FEW_FRESH, "the largest that is accepted"),
        ("stale_groups", SHARE, _AHEAD, "share of the step's groups that an earlier version than its parent sampled"),
        ("ratio_mean", "ratio", _MADE, "mean of the importance ratios"),
        ("ratio_max", "ratio", _MADE, "the largest of them"),
        ("clip_fraction", SHARE, _MADE, "share of tokens whose ratio was clipped"),
        ("entropy", "nats", _MADE, "mean entropy of the policy per token"),
        ("grad_norm", "none", _MADE, "norm of the gradient before clipping"),
        ("grad_norm_limit", "none", _MADE, "the largest norm that was applied, with trainer.grad_clip_recent"),
        ("lr", "none", _MADE, "the learning rate"),
        ("rows", "rows", _MADE, "token rows"),
        ("rows_per_trajectory", "rows", _MADE, "token rows per attempt"),
        ("tokens", "tokens", _MADE, "tokens of all rows"),
        ("trained_tokens", "tokens", _MADE, "tokens in the loss"),
        (
            "forward_tokens",
            "tokens",
            _MADE,
            "tokens computed: a prefix that rows share counts once, and padding counts",
        ),
        ("tokens_per_s", "tokens a second", _MADE, "throughput of training"),
        ("probe_separation", "nats", _MADE, "difference between the probes of the version and its parent"),
        (
            "text_contradictions",
            "answers",
            _MADE,
            "answers whose text is not in their ids, for parsers not compared yet",
        ),
        ("optimizer_fresh", "0 or 1", _MADE, "1: the parent had no optimizer state"),
    )
)
_MEASURED: Final = "each step that made a version, with a drift set (docs/drift.md)"
_DRIFT: Final = tuple(
    FigureName(f"drift/{name}", unit, _MEASURED, what)
    for name, unit, what in (
        ("kl_base", "nats", "mean KL(version ‖ base) over the whole vocabulary"),
        ("kl_parent", "nats", "the same from its parent"),
        ("kl_parent_whole", "nats", "the same before the update was halved (trainer.kl_parent_max), if it was"),
        ("kl_day", "nats", "the same from the version of a day ago, if there is one"),
        ("kl_week", "nats", "the same from the version of a week ago, if there is one"),
        ("entropy", "nats", "mean entropy of the version"),
        ("trajectories", "trajectories", "trajectories of the drift set"),
        ("tokens", "tokens", "sampled tokens of the drift set, at which distributions are compared"),
    )
)
_HEALTH: Final = tuple(
    FigureName(f"health/{name}", unit, _EACH, what)
    for name, unit, what in (
        ("attempts", "attempts", "of `hone learn`: trajectories that the figures are of"),
        ("length", "tokens", "sampled tokens per attempt"),
        ("turns", "turns", "turns per attempt"),
        ("tool_calls", "calls", "tool calls per attempt"),
        ("seconds", "seconds", "duration of an attempt"),
        ("repetition", SHARE, "share of four-word phrases that an attempt repeats"),
        ("zero_variance", SHARE, "share of groups whose attempts all have the same reward"),
        ("perfect", SHARE, "share of attempts with the highest reward"),
        ("judge_agreement", SHARE, "pairs of a success and a failure that the reward orders correctly"),
        ("strong_agreement", "-1 to 1", "agreement of the judge and `judge.strong`: mean tau-b"),
        ("strong_scores", "0 or 1", "1: they agree too little, and the strong judge scores"),
    )
)
_END: Final = (
    FigureName(
        "alarm/RULE",
        "1 or 2",
        "when a health rule fires",
        "1: noted, or the rule ended the campaign; 2: it paused the campaign or learning (docs/health.md)",
    ),
    FigureName("setting_changed", "1", "at a change", "a setting, the judge recipe or the judge changed"),
    FigureName("end/success_before", SHARE, "at the end", "success at the first measurement"),
    FigureName("end/success_after", SHARE, "at the end", "success at the last measurement"),
    FigureName("end/trained", "attempts", "at the end", "attempts trained on by the whole campaign"),
    FigureName("end/took_s", "seconds", "at the end", "since the campaign began, or was resumed"),
)


def _measures(of: str, when: str, about: str) -> Iterator[FigureName]:
    for name, unit, what in (
        ("success", SHARE, f"successes {about}"),
        ("success_low", SHARE, "lower end of its 95 % interval"),
        ("success_high", SHARE, "upper end of its 95 % interval"),
        ("reward", "reward", f"mean reward {about}"),
        ("reward_low", "reward", "lower end of its 95 % interval, if the reward is the measure"),
        ("reward_high", "reward", "upper end of its 95 % interval, if the reward is the measure"),
        ("reward_std", "reward", "standard deviation of these rewards, if they are the measure"),
        ("win_rate", SHARE, "share of comparisons with version 0 won, a tie half, if RULER is the only reward"),
        ("win_rate_low", SHARE, "lower end of its 95 % interval"),
        ("win_rate_high", SHARE, "upper end of its 95 % interval"),
        ("attempts", "attempts", "attempts that ended by themselves and were measured"),
        ("errored", "attempts", "errored attempts; no mean counts them"),
        ("took_s", "seconds", "duration of the measurement"),
        ("adversarial", SHARE, "successes at adversarial scenarios"),
        ("adversarial_attempts", "attempts", "attempts at these"),
        ("turns", "turns", "turns per attempt"),
        ("tokens", "tokens", "sampled tokens per attempt"),
        ("seconds", "seconds", "duration of an attempt"),
        ("part.NAME", "reward", "mean of a part of the reward, if all attempts are judged by then"),
    ):
        yield FigureName(f"{of}/{name}", unit, when, what)
