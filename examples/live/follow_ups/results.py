"""One session's result: its format, the committed ones, and which sessions are still to be measured.

Owns: the figures of a result file `measured/follow_ups/ARM-SEED.json`. Refuses: running sessions
(`examples.live.follow_ups.session`) and the table (`examples.live.follow_ups.table`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from examples.live.follow_ups.arms import ARMS, ArmName
from examples.live.follow_ups.held_out import TARGET, HeldOutPoint, seconds_to
from examples.live.follow_ups.rewards import RewardTruth
from examples.live.summary import Course, summary

MEASURED: Final = Path(__file__).parent.parent / "measured" / "follow_ups"
MINUTES: Final = 20.0  # of a session whose result is kept
_KEPT: Final = (
    "seconds", "runs", "runs_a_second", "first_version", "last_minute", "versions_live", "versions_refused", "steps",
    "trained", "left_out", "last_call_to_decision_s", "by_minute", "faults",
)  # fmt: skip

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Session:
    """One session to run."""

    arm: ArmName
    seed: int
    minutes: float = MINUTES

    @property
    def is_whole(self) -> bool:
        """Whether it is long enough for its result to be kept."""
        return self.minutes >= MINUTES

    @property
    def name(self) -> str:
        """Return what names its files."""
        return f"{self.arm}-{self.seed}"

    def path(self, folder: Path = MEASURED) -> Path:
        """Return the file of its committed result."""
        return folder / f"{self.name}.json"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was seen of one session. `counts`: of `examples.live.follow_ups.writers`."""

    session: Session
    course: Course
    held_out: Sequence[HeldOutPoint]
    counts: Mapping[str, int]
    rewards: RewardTruth


def result_of(measurement: Measurement) -> dict[str, Any]:
    """Return all figures, in the format of a result file."""
    session, found = measurement.session, summary(measurement.course)
    return {
        "arm": session.arm,
        "seed": session.seed,
        "minutes": session.minutes,
        "error_rate": ARMS[session.arm].error_rate,
        "shares": asdict(ARMS[session.arm].shares),
        "held_out": [point.as_json() for point in measurement.held_out],
        "target": TARGET,
        "seconds_to_target": seconds_to(measurement.held_out),
        "messages": dict(sorted(measurement.counts.items())),
        "rewards": asdict(measurement.rewards),
        "imitated": sum(int(step.metrics.get("demonstrations", 0)) for step in measurement.course.written.steps),
        **{name: found[name] for name in _KEPT},
    }


def is_learned(result: Result) -> bool:
    """Whether the session had no fault and brought a version into service."""
    return not result["faults"] and result["versions_live"] > 0


def read_results(folder: Path = MEASURED) -> list[Result]:
    """Return the committed results, by arm and seed."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(found, key=lambda one: (list(ARMS).index(one["arm"]), int(one["seed"])))


def write_result(path: Path, result: Result) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def sessions_left(sessions: Sequence[Session], folder: Path = MEASURED) -> list[Session]:
    """Return the sessions without a committed result. Short ones are never committed, so all of them are left."""
    return [one for one in sessions if not (one.is_whole and one.path(folder).exists())]
