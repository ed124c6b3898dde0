"""Every figure that trackers are sent: its name, its unit, and when. docs/metrics.md is made from it.

Owns: the table. Refuses: sending (`trainer.trackers.entries`); a test compares the two, both ways. A word in capitals
stands for a name that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SHARE: Final = "0 to 1"
_PLACE: Final = re.compile(r"[A-Z_]{4,}")


@dataclass(frozen=True, slots=True)
class FigureName:
    """One figure, or one for each of what its capitals stand for."""

    pattern: str
    unit: str
    when: str
    what: str

    def fits(self, name: str) -> bool:
        """Whether it is the name of this figure."""
        parts = (re.escape(part) for part in _PLACE.split(self.pattern))
        return re.fullmatch(".+".join(parts), name) is not None


def figure_names() -> Iterator[FigureName]:
    """All of them, in the order of the page."""
    yield from _STEP
    yield from _TRAIN
    yield from _HEALTH
    yield from _measures("val", "each validation", "of the version in service")
    yield from _measures("baseline/MODEL", "before step 1", "of a model of campaign.baselines")
    yield from _measures("test/MODEL", "at the end", "on the test part: of what serves, the base and each baseline")
    yield from _END


_EACH, _MADE = "each step", "each step that made a version"

_STEP: Final = (
    FigureName("step/success", SHARE, _EACH, "successes among its measured attempts, where success is measured"),
    FigureName("step/success_low", SHARE, _EACH, "lower end of its 95 % interval"),
    FigureName("step/success_high", SHARE, _EACH, "upper end of its 95 % interval"),
    FigureName("step/reward", "reward", _EACH, "mean reward of its attempts"),
    FigureName("step/reward_low", "reward", _EACH, "lower end of its 95 % interval, where success is not measured"),
    FigureName("step/reward_high", "reward", _EACH, "upper end of its 95 % interval, where success is not measured"),
    FigureName("step/attempts", "attempts", _EACH, "made for it"),
    FigureName("step/measured", "attempts", _EACH, "that ended by themselves and were measured"),
    FigureName("step/errored", "attempts", _EACH, "that errored; no mean counts them"),
    FigureName("step/trained", "attempts", _EACH, "trained on"),
    FigureName("step/excluded", "attempts", _EACH, "not trained on"),
    FigureName("step/failed", "0 or 1", _EACH, "1: it failed by a fault, not for want of something to learn"),
    FigureName("excluded/CODE", "attempts", _EACH, "not trained on, by reason (docs/reasons.md)"),
    FigureName(
        "seconds/PHASE", "seconds", _EACH, "sampling, judging, training, swapping; and what training took them for"
    ),
    FigureName(
        "part/NAME", "reward", _EACH, "mean of a part of the reward, or of what was given beside it (NAME.EXTRA)"
    ),
)
_TRAIN: Final = tuple(
    FigureName(f"train/{name}", unit, when, what)
    for name, unit, when, what in (
        ("reward_mean", "reward", _EACH, "mean of the rewards that counted"),
        ("reward_std", "reward", _EACH, "their standard deviation"),
        ("groups", "groups", _EACH, "of the step"),
        ("groups_trained", "groups", _EACH, "of them trained on"),
        ("loss", "none", _MADE, "the loss"),
        ("kl_engine", "nats", _MADE, "KL(engine ‖ trainer) before the update: what the two compute differently"),
        ("kl_base", "nats", _MADE, "KL to the base, where trainer.kl_coef is above 0"),
        ("logprob_gap", "nats", _MADE, "mean difference between the engine's and the trainer's logprobs"),
        ("logprob_gap_max", "nats", _MADE, "the largest of these"),
        ("ratio_mean", "ratio", _MADE, "mean of the importance ratios"),
        ("ratio_max", "ratio", _MADE, "the largest of them"),
        ("clip_fraction", SHARE, _MADE, "tokens whose ratio was clipped"),
        ("entropy", "nats", _MADE, "of the policy, a token"),
        ("grad_norm", "none", _MADE, "norm of the gradient before it was clipped"),
        ("lr", "none", _MADE, "the learning rate"),
        ("rows", "rows", _MADE, "of tokens"),
        ("rows_per_trajectory", "rows", _MADE, "an attempt"),
        ("tokens", "tokens", _MADE, "of all rows"),
        ("trained_tokens", "tokens", _MADE, "that the loss is over"),
        ("forward_tokens", "tokens", _MADE, "computed: without prefixes that rows share"),
        ("tokens_per_s", "tokens a second", _MADE, "trained"),
        ("probe_separation", "nats", _MADE, "how far the version's probe lies from its parent"),
        ("optimizer_fresh", "0 or 1", _MADE, "1: the parent had no optimizer state"),
    )
)
_HEALTH: Final = tuple(
    FigureName(f"health/{name}", unit, "each step of a campaign", what)
    for name, unit, what in (
        ("length", "tokens", "sampled, an attempt"),
        ("turns", "turns", "an attempt"),
        ("tool_calls", "calls", "an attempt"),
        ("seconds", "seconds", "an attempt"),
        ("repetition", SHARE, "of what is said that was said before"),
        ("zero_variance", SHARE, "groups whose attempts all got one reward"),
        ("perfect", SHARE, "attempts with the highest reward"),
        ("judge_agreement", SHARE, "pairs of a success and a failure that the reward orders rightly"),
        ("strong_agreement", "-1 to 1", "how far the judge and `judge.strong` agree: mean tau-b"),
        ("strong_scores", "0 or 1", "1: they agree too little, and the strong one scores"),
    )
)
_END: Final = (
    FigureName(
        "alarm/RULE",
        "1 or 2",
        "when a health rule spoke",
        "1: noted, or it ended the campaign; 2: it paused it (docs/health.md)",
    ),
    FigureName(
        "setting_changed", "1", "when gone on with", "a setting or recipe was changed between a pause and going on"
    ),
    FigureName("end/success_before", SHARE, "at the end", "successes at first"),
    FigureName("end/success_after", SHARE, "at the end", "successes at last"),
    FigureName("end/trained", "attempts", "at the end", "trained on by the whole campaign"),
    FigureName("end/took_s", "seconds", "at the end", "since the campaign was begun, or gone on with"),
)


def _measures(of: str, when: str, about: str) -> Iterator[FigureName]:
    for name, unit, what in (
        ("success", SHARE, f"successes {about}"),
        ("success_low", SHARE, "lower end of its 95 % interval"),
        ("success_high", SHARE, "upper end of its 95 % interval"),
        ("reward", "reward", f"mean reward {about}"),
        ("reward_low", "reward", "lower end of its 95 % interval, where the reward is the measure"),
        ("reward_high", "reward", "upper end of its 95 % interval, where the reward is the measure"),
        ("reward_std", "reward", "standard deviation of these rewards, where they are the measure"),
        ("win_rate", SHARE, "comparisons with version 0 won, a tie half, where RULER is the only reward"),
        ("win_rate_low", SHARE, "lower end of its 95 % interval"),
        ("win_rate_high", SHARE, "upper end of its 95 % interval"),
        ("attempts", "attempts", "that ended by themselves and were measured"),
        ("errored", "attempts", "that errored; no mean counts them"),
        ("took_s", "seconds", "that measuring took"),
        ("adversarial", SHARE, "successes at scenarios that tempt to cheat"),
        ("adversarial_attempts", "attempts", "at these"),
        ("turns", "turns", "an attempt"),
        ("tokens", "tokens", "sampled, an attempt"),
        ("seconds", "seconds", "an attempt"),
        ("part.NAME", "reward", "mean of a part of the reward, where all is judged by then"),
    ):
        yield FigureName(f"{of}/{name}", unit, when, what)
