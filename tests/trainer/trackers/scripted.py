"""A whole campaign as it is told, with every kind of event, and its way to trackers. Nothing in it is measured."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from recorder.views.campaigns.events import Alarm, CampaignEnded, SettingChanged, StepDone, Validation
from trainer.progress import Event, Notice, PhaseStatus
from trainer.track_settings import TrackSettings
from trainer.trackers.base import TrackerRun
from trainer.trackers.delivery import track_events

PATIENCE_S: Final = 110.0  # on a machine that does much else, libraries take their time to load

# Whatever must never leave: texts of the settings, of notes and of errors.
SECRET: Final = "sk-nobody-else-may-read-this"

_TRAINER: Final = (
    "reward_mean", "reward_std", "groups", "groups_trained", "pair_weight", "credited_turns", "loss", "kl_engine",
    "kl_base", "follow_up_share", "follow_ups_waiting", "logprob_gap", "logprob_gap_max", "logprob_gap_bound",
    "fresh_tokens", "probe_gap", "probe_gap_bound", "stale_groups",
    "engine_mismatch", "copy_gap", "ratio_mean", "ratio_max", "clip_fraction", "entropy", "grad_norm",
    "grad_norm_limit", "lr", "rows",
    "rows_per_trajectory", "tokens", "trained_tokens", "forward_tokens", "tokens_per_s", "probe_separation",
    "text_contradictions", "optimizer_fresh", "seconds.read", "seconds.train", "part.ruler", "part.rubric.criteria_met",
    "demonstrations", "rendered_tokens", "objective.imitate.tokens", "objective.imitate.loss",
    "objective.imitate.gradient_share", "rehearsal", "pairs", "objective.prefer.margin", "objective.prefer.accuracy",
    "objective.hindsight.turns", "objective.hindsight.excluded", "objective.hindsight.advantage",
    "objective.hindsight.clipped",
    "drift.kl_base", "drift.kl_parent", "drift.kl_parent_whole", "drift.kl_day", "drift.kl_week", "drift.entropy",
    "drift.trajectories", "drift.tokens",
)  # fmt: skip
_HEALTH: Final = (
    "length", "turns", "tool_calls", "seconds", "repetition", "zero_variance", "perfect", "judge_agreement",
    "strong_agreement", "strong_scores", "attempts",
)  # fmt: skip
_OF_ATTEMPTS: Final = {"turns": 3.0, "tokens": 120.0, "seconds": 1.5, "part.ruler": 0.4, "reward_std": 0.1}


def step(number: int) -> StepDone:
    """A step that trained, with every figure that there is."""
    metrics = dict.fromkeys(_TRAINER, number + 0.25) | {f"health.{name}": number + 0.5 for name in _HEALTH}
    return StepDone(
        step=number,
        version=f"support@{number}",
        sampled_by=f"support@{number - 1}",
        success=0.5,
        reward=0.25,
        kl=0.1,
        kl_base=0.2,
        tokens_per_s=100.0,
        attempts=16,
        errored=1,
        trained=14,
        left_out={"no_contrast": 2},
        seconds={"sampling": 1.0, "judging": 2.0, "training": 3.0, "swapping": 4.0},
        note=f"it said {SECRET}",
        metrics=metrics,
    )


def measured(after: int, version: str, by: str = "success", *, part: str = "val", baseline: bool = False) -> Validation:
    """A validation, a baseline or a test. `by`: what it is measured by; what would be measured in its place goes."""
    return Validation(
        after, version, 0.5 if by == "success" else None, 0.25, 20, 1, 12.0, part=part, baseline=baseline,
        win_rate=0.75 if by != "reward" else None, figures=_OF_ATTEMPTS, adversarial=0.1, adversarial_attempts=5,
    )  # fmt: skip


def campaign() -> list[Event]:
    """Baselines, three steps, a pause and its way on, a test, and the end."""
    return [
        Notice(f"begins with {SECRET}"),
        measured(0, "gpt-5", baseline=True),
        measured(0, "gpt-5-mini", "wins", baseline=True),
        measured(0, "gpt-5-nano", "reward", baseline=True),
        measured(0, "support@0"),
        PhaseStatus(1, "sampling", 1, 16),
        step(1),
        step(2),
        measured(2, "support@2", "wins"),
        Alarm(2, "length_drift", "note", SECRET),
        Alarm(2, "reward_hacking", "pause", SECRET, {"rise": 0.3}, [{"trajectory": "t_1", "reward": 1.0}]),
        SettingChanged(2, "judge", SECRET, SECRET),
        replace(step(3), success=None),
        measured(3, "support@3", "reward"),
        measured(3, "support@3", part="test"),
        measured(3, "gpt-5", "wins", part="test", baseline=True),
        measured(3, "gpt-5-mini", "reward", part="test", baseline=True),
        measured(3, "base", part="test", baseline=True),
        CampaignEnded("support", "target", SECRET, 3, "support@3", 60.0, 0.25, 0.5, 20, 20, {}, 42, {"no_contrast": 6}),
    ]


def run_of(folder: Path) -> TrackerRun:
    """The run of that campaign."""
    return TrackerRun("cmp_1", "support", str(folder / "tracking"), {"campaign.steps": 3, "trainer.loss": "cispo"})


@dataclass
class Heard:
    """What people would have read."""

    said: list[str] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.said.append(event.text)


async def send(
    settings: TrackSettings, folder: Path, events: Sequence[Event], *, before: Sequence[Event] = ()
) -> Heard:
    """Tell trackers of events; `before`: those that an earlier process told."""
    heard = Heard()
    async with track_events(settings, run_of(folder), heard, end_s=PATIENCE_S) as tracking:
        tracking.again(before)
        for event in events:
            tracking.tell(event)
    return heard


def assert_private(*files: Path) -> None:
    """No word that people wrote, no name of the machine and no path of it is in these files, or their names."""
    found = b"".join(file.name.encode() + file.read_bytes() for file in files)
    for secret in (SECRET, socket.gethostname(), str(Path.home()), str(Path(__file__).resolve().parents[3])):
        assert secret.encode() not in found, secret
