"""Of which parts the rewards of one group are made: of the same ones for every run, or the run has none.

Owns: ranges, and what a missing part means: it leaves the whole group, or costs its run the reward, or the group waits.
Refuses: the numbers (`judge.scoring.combine`), where parts come from (`judge.rewards.kinds`). All pure.

A check that fails on a run must never pay. If the others shared the weight of its part, the run would be compared with
runs that were measured by more than it was, and one that crashes its check would gain what an honest failure loses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from judge.rewards.part import Part
from judge.settings import JudgeSettings, Missing, RewardSettings

Found = Mapping[str, Mapping[str, Part]]  # part's name → trajectory id → part

_NOT_ASKED = Part(None, "nobody asked for it")
_NOTHING = "no part of it applies"


@dataclass(frozen=True, slots=True)
class Makeup:
    """What the rewards of one group are made of, who has none, and why."""

    counting: Sequence[RewardSettings] = ()  # every reward of the group is made of these
    left: Mapping[str, str] = field(default_factory=dict)  # part → why it left the group
    lacking: Mapping[str, str] = field(default_factory=dict)  # trajectory → why it has no reward
    waits: str | None = None  # what the whole group is held for


def makeup(runs: Sequence[str], found: Found, settings: JudgeSettings) -> Makeup:
    """The makeup of the rewards of `runs`, by their ids.

    A reward that `found` has no part of does not apply to this group (RULER, where there is nobody to compare with).
    Where every part of the mean would leave, none does: then who lacks one has no reward.
    """
    applying = [reward for reward in settings.in_force() if reward.weight > 0 and found.get(reward.name)]
    if not any(reward.effect == "score" for reward in applying):
        return Makeup(lacking=dict.fromkeys(runs, _NOTHING))
    gone = {reward.name: _gone(runs, found[reward.name]) for reward in applying}
    policy = {reward.name: settings.when_missing(reward) for reward in applying}
    # Who lacks what stays has no reward. So it costs the others no part, and nobody waits for what it lacks besides.
    out = _by_run({name: _excluding(gaps, policy[name]) for name, gaps in gone.items()})
    open_ = {name: {run: part for run, part in gaps.items() if run not in out} for name, gaps in gone.items()}
    leaving = [name for name in open_ if open_[name] and policy[name] == "drop_part"]
    held = _by_run({name: gaps for name, gaps in open_.items() if policy[name] == "hold"})
    if held:
        waits = _told(next(iter(held.values())))
        return Makeup(applying, lacking=dict.fromkeys(runs, waits), waits=waits)
    if all(reward.name in leaving for reward in applying if reward.effect == "score"):
        out, leaving = _by_run(gone), []
    return Makeup(
        counting=[reward for reward in applying if reward.name not in leaving],
        left={name: str(next(iter(open_[name].values())).explanation) for name in leaving},
        lacking={run: _told(out[run]) for run in runs if run in out},
    )


def in_range(reward: RewardSettings, part: Part) -> Part:
    """The part; without its value where that lies outside the reward's range."""
    if part.value is None or reward.low <= part.value <= reward.high:
        return part
    outside = f"{part.value!r} is outside {reward.low:g} to {reward.high:g} (`low` and `high` of the reward)"
    return replace(part, value=None, explanation=f"{outside}: {part.explanation}" if part.explanation else outside)


def _gone(runs: Sequence[str], parts: Mapping[str, Part]) -> dict[str, Part]:
    """The runs that lack a part, and what is there in its place."""
    there = {run: parts.get(run, _NOT_ASKED) for run in runs}
    return {run: part for run, part in there.items() if part.value is None}


def _excluding(gaps: Mapping[str, Part], policy: Missing) -> dict[str, Part]:
    """Those of a part's gaps that cost the run its reward, whatever becomes of the group."""
    return {run: part for run, part in gaps.items() if policy == "exclude" or (policy == "drop_part" and part.of_run)}


def _by_run(gone: Found) -> dict[str, dict[str, Part]]:
    """What each run lacks, by part."""
    runs = dict.fromkeys(run for lacks in gone.values() for run in lacks)
    return {run: {name: lacks[run] for name, lacks in gone.items() if run in lacks} for run in runs}


def _told(lacks: Mapping[str, Part]) -> str:
    """Why a run has no reward; that it was then not asked for the rest is nothing new."""
    asked = {name: part for name, part in lacks.items() if part is not _NOT_ASKED} or lacks
    return "; ".join(f"{name}: {part.explanation}" for name, part in asked.items())
