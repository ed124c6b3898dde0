"""summary.json: the result of an example's campaign from `hone report`, in one format for all examples.

Owns: its figures, what is a fault, and what counts as a rise. Pure. Refuses: smoothing, and omitting any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from recorder.stats.means import share_interval

Report = Mapping[str, Any]
Summary = dict[str, Any]

BASE: Final = "base"  # version 0, by its name in the report's tests
FIGURES: Final = 4  # decimal places


def summarize(
    report: Report,
    *,
    example: str,
    seed: int,
    short: bool,
    measured: str,
    seconds: float,
    faults: Iterable[str] = (),
    judged: bool = True,
) -> Summary:
    """Return the summary of a finished campaign.

    `measured`: a sentence on what counts as success, for which scenarios. `seconds`: duration of the whole run, engine
    start included. `faults`: faults that the report does not have. `judged`: a judge model judges; if only functions
    reward, the report's judgings are no requests.
    """
    tests = list(report["tests"])
    rivals = [one for one in tests if one["version"] not in (BASE, report["served"])]
    summary = {
        "example": example,
        "seed": seed,
        "short": short,
        "measured": measured,
        "before": share(next((one for one in tests if one["version"] == BASE), None)),
        "after": share(next((one for one in tests if one["version"] == report["served"]), None)),
        "baselines": {one["version"]: share(one) for one in rivals},
        "seconds": round(seconds, 1),
        "judge": _judge(report["judged"], asked=judged),
        "attempts": report["attempts"],
        "steps": [_step(one) for one in report["steps"]],
        "validations": [
            {"step": one["step"], "version": one["version"], **share(one)} for one in report["validations"]
        ],
        "alarms": [_alarm(one["alarm"]) for one in report["alarms"]],
        "stopped": report["status"]["code"],
        "why": report["status"]["text"],
        "served": report["served"],
        "trained": report["trained"],
        "left_out": {one["code"]: one["trajectories"] for one in report["excluded"]},
    }
    return {**summary, "faults": [*faults, *_faults(report, summary)]}


def share(point: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a measurement's success, its number of attempts and Wilson's 95 % interval; None without a measurement."""
    if point is None or point["value"] is None:
        return {"success": None, "attempts": 0, "low": None, "high": None}
    value, attempts = point["value"], point["attempts"]
    sure = share_interval(value, attempts)
    return {
        "success": _round(value),
        "attempts": attempts,
        "low": _round(sure.low) if sure else None,
        "high": _round(sure.high) if sure else None,
    }


def rose(summary: Mapping[str, Any]) -> bool:
    """Whether success certainly rose: the intervals do not overlap. In the short form, with few attempts: the later
    interval is above the earlier share."""
    before, after = summary["before"], summary["after"]
    if after["low"] is None or before["success"] is None:
        return False
    return bool(after["low"] > (before["success"] if summary["short"] else before["high"]))


def missing(summary: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a run does not show what its example claims, one sentence each."""
    before, after = summary["before"], summary["after"]
    fell = f"no certain rise: {before['success']} of {before['attempts']} → {after['success']} of {after['attempts']}"
    return [*summary["faults"], *([] if rose(summary) else [fell])]


def _judge(judged: Mapping[str, Any], *, asked: bool) -> dict[str, Any]:
    tokens = judged["tokens_in"] + judged["tokens_out"]
    requests, groups = (judged["requests"], judged["judgings"]) if asked else (0, 0)
    return {"requests": requests, "groups": groups, "in_vain": judged["in_vain"], "tokens": tokens}


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": step["step"], "success": _round(step["success"]), "reward": _round(step["reward"])}


def _alarm(alarm: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": alarm["step"], "rule": alarm["rule"], "words": alarm["detail"], "then": alarm["then"]}


def _faults(report: Report, summary: Mapping[str, Any]) -> list[str]:
    points: Sequence[Mapping[str, Any]] = [*report["validations"], *report["baselines"], *report["tests"]]
    measuring = sum(point["errored"] for point in points)
    vain = summary["judge"]["in_vain"]
    told = (
        (report["errored"], f"{report['errored']} attempts of steps raised"),
        (measuring, f"{measuring} attempts of measurements raised"),
        (report["failed_steps"], f"{report['failed_steps']} steps failed"),
        (vain, f"{vain} requests to the judge gave no score"),
    )
    return [words for number, words in told if number]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, FIGURES)
