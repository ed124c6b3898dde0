"""The summary of live traffic: success by minute and by version, training data, decisions.

Owns: the figures of summary.json. Pure: its inputs are what users saw (`examples.live.users`) and what Hone recorded
(`examples.live.record`). Refuses: smoothing, and omitting any trajectory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

from examples.helpdesk.ending import wilson
from examples.live.record import LIVE, LearningRecord
from examples.live.users import Run

MINUTE_S: Final = 60.0
TRAINED: Final = "trained"


@dataclass(frozen=True, slots=True)
class Share:
    """The share of trajectories with the right answer, with Wilson's 95 % interval."""

    runs: int
    right: int
    success: float | None
    low: float
    high: float


def share(right: Iterable[bool]) -> Share:
    """Return the share of these trajectories."""
    all_ = list(right)
    n, good = len(all_), sum(all_)
    return Share(n, good, round(good / n, 4) if n else None, *wilson(good / n if n else 0.0, n))


@dataclass(frozen=True, slots=True)
class Course:
    """When the first and the last user came (unix seconds), faults and notes."""

    began: float
    ended: float
    runs: Sequence[Run]
    written: LearningRecord
    faults: Sequence[str]
    notes: Sequence[tuple[float, str]]  # what the example did meanwhile, and when


def summary(course: Course) -> dict[str, Any]:
    """Return all figures, in summary.json's format."""
    answered = [run for run in course.runs if run.version is not None]
    live = [one for one in course.written.decisions if one.move == LIVE]
    return {
        "seconds": round(course.ended - course.began, 1),
        "runs": len(course.runs),
        "runs_a_second": round(len(course.runs) / max(1e-9, course.ended - course.began), 2),
        "first_version": asdict(share(run.right for run in answered if run.version == _first(answered))),
        "last_minute": asdict(share(r.right for r in course.runs if r.asked_at >= course.ended - MINUTE_S)),
        "versions_live": len(live),
        "versions_refused": sum(one.move == "rejected" for one in course.written.decisions),
        "steps": len(course.written.steps),
        "trained": _codes(course.written)[TRAINED],
        "left_out": {code: n for code, n in sorted(_codes(course.written).items()) if code != TRAINED},
        "last_call_to_decision_s": _waits(course.written),
        "faults": [*course.faults, *(f"a user's trajectory: {run.fault}" for run in course.runs if run.fault)],
        "by_version": {name: _version(course, runs) for name, runs in _by_version(answered).items()},
        "by_minute": [_minute(course, n) for n in range(_minutes(course))],
        "decisions": [
            {"second": round(one.at - course.began, 1), "version": one.version, "move": one.move, "why": one.why}
            | {"figures": dict(one.figures)}
            for one in course.written.decisions
        ],
        "notes": [{"second": round(at - course.began, 1), "text": text} for at, text in course.notes],
    }


def _first(runs: Sequence[Run]) -> str | None:
    return min(runs, key=lambda run: run.asked_at).version if runs else None


def _codes(written: LearningRecord) -> Counter[str]:
    return Counter(one.code for one in written.told)


def _waits(written: LearningRecord) -> dict[str, float] | None:
    """Return the time from the last call of each trained group to the decision on its version: median, p95, maximum."""
    waits = sorted(one.at - at for one in written.decisions for at in written.last_calls.get(one.version_id, ()))
    if len(waits) < 2:
        return None
    cuts = quantiles(waits, n=20)
    return {"median": round(cuts[9], 1), "p95": round(min(cuts[18], waits[-1]), 1), "most": round(waits[-1], 1)}


def _by_version(runs: Iterable[Run]) -> Mapping[str, list[Run]]:
    """Return the trajectories that each version answered, in the order of the versions' first answers."""
    by: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.asked_at):
        by.setdefault(str(run.version), []).append(run)
    return by


def _version(course: Course, runs: Sequence[Run]) -> dict[str, Any]:
    """Return one version's trajectories; `second`: the time of the median one."""
    return {"second": round(median(r.asked_at for r in runs) - course.began, 1), **asdict(share(r.right for r in runs))}


def _minutes(course: Course) -> int:
    return max(1, round((course.ended - course.began) / MINUTE_S))


def _minute(course: Course, n: int) -> dict[str, Any]:
    """Return one minute; later trajectories count in the last minute."""
    first = course.began + n * MINUTE_S
    last = first + MINUTE_S if n + 1 < _minutes(course) else float("inf")
    asked = [run for run in course.runs if first <= run.asked_at < last]
    codes = Counter(one.code for one in course.written.told if first <= one.at < last)
    decided = [one for one in course.written.decisions if first <= one.at < last]
    return {
        "minute": n + 1,
        **asdict(share(run.right for run in asked)),
        "by_version": {name: len(runs) for name, runs in _by_version(r for r in asked if r.version).items()},
        "trained": codes.pop(TRAINED, 0),
        "left_out": dict(sorted(codes.items())),
        "live": [one.version for one in decided if one.move == LIVE],
        "refused": [one.version for one in decided if one.move != LIVE],
    }
