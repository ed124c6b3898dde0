"""Combine the parts of a group's rewards: weights, penalties and vetoes; and the hash of the recipe. Pure.

Owns: ranges, and the meaning of a missing part: it is dropped for the whole group, or costs its trajectory the reward,
or the group waits. Refuses: where parts come from (`judge.rewards.kinds`).

All trajectories of a group are rewarded by the same parts. A check that fails on one trajectory must never pay: if the
other parts took over its weight, a trajectory that crashes its check would gain what an honest failure loses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from judge.llm import follow_up_prompt, prompt, turn_critique
from judge.rewards.part import RewardPart
from judge.settings import LIMIT, JudgeSettings, Missing, RewardSettings
from recorder.queue.judging.turn_values import turn_number

PartTable = Mapping[str, Mapping[str, RewardPart]]  # part's name → trajectory id → part

_NOT_ASKED = RewardPart(None, "it was not requested")
_NOTHING = "no part of it applies"


@dataclass(frozen=True, slots=True)
class RewardParts:
    """The parts behind a group's rewards, the trajectories without a reward, and why."""

    counting: Sequence[RewardSettings] = ()  # the parts that every reward of the group is made of
    left: Mapping[str, str] = field(default_factory=dict)  # part → why it was dropped for the group
    lacking: Mapping[str, str] = field(default_factory=dict)  # trajectory → why it has no reward
    waits: str | None = None  # what the whole group waits for


def select_parts(runs: Sequence[str], found: PartTable, settings: JudgeSettings) -> RewardParts:
    """Choose the parts that make the rewards of `runs` (trajectory ids).

    A reward without any part in `found` does not apply to this group (RULER, in a group of one). If every part of the
    mean would be dropped, none is: then a trajectory that lacks one has no reward.
    """
    applying = [reward for reward in settings.in_force() if reward.weight > 0 and found.get(reward.name)]
    if not any(reward.effect == "score" for reward in applying):
        return RewardParts(lacking=dict.fromkeys(runs, _NOTHING))
    gone = {reward.name: _gone(runs, found[reward.name]) for reward in applying}
    policy = {reward.name: settings.when_missing(reward) for reward in applying}
    # A trajectory that lacks a kept part has no reward. So its other gaps drop no part and are not waited for.
    out = _by_run({name: _excluding(gaps, policy[name]) for name, gaps in gone.items()})
    open_ = {name: {run: part for run, part in gaps.items() if run not in out} for name, gaps in gone.items()}
    leaving = [name for name in open_ if open_[name] and policy[name] == "drop_part"]
    held = _by_run({name: gaps for name, gaps in open_.items() if policy[name] == "hold"})
    if held:
        waits = _reasons(next(iter(held.values())))
        return RewardParts(applying, lacking=dict.fromkeys(runs, waits), waits=waits)
    if all(reward.name in leaving for reward in applying if reward.effect == "score"):
        out, leaving = _by_run(gone), []
    return RewardParts(
        counting=[reward for reward in applying if reward.name not in leaving],
        left={name: str(next(iter(open_[name].values())).explanation) for name in leaving},
        lacking={run: _reasons(out[run]) for run in runs if run in out},
    )


def clip_to_range(reward: RewardSettings, part: RewardPart) -> RewardPart:
    """The part; without its value if that is outside the reward's range, and without such values of turns."""
    part = _clip_turns(reward, part)
    if part.value is None or reward.low <= part.value <= reward.high:
        return part
    outside = f"{part.value!r} is outside {reward.low:g} to {reward.high:g} (`low` and `high` of the reward)"
    why = f"{outside}: {part.explanation}" if part.explanation else outside
    return replace(part, value=None, explanation=why, undecided=part.of_run)  # users may correct their feedback


def _clip_turns(reward: RewardSettings, part: RewardPart) -> RewardPart:
    outside = {
        name: value
        for name, value in part.extra.items()
        if turn_number(name) is not None and not reward.low <= value <= reward.high
    }
    if not outside:
        return part
    named = ", ".join(f"{name} is {value!r}" for name, value in outside.items())
    why = f"{named}: outside {reward.low:g} to {reward.high:g} (`low` and `high` of the reward)"
    kept = {name: value for name, value in part.extra.items() if name not in outside}
    return replace(part, extra=kept, explanation=f"{part.explanation}; {why}" if part.explanation else why)


def _gone(runs: Sequence[str], parts: Mapping[str, RewardPart]) -> dict[str, RewardPart]:
    """The trajectories that lack a part, with the reason."""
    there = {run: parts.get(run, _NOT_ASKED) for run in runs}
    return {run: part for run, part in there.items() if part.value is None}


def _excluding(gaps: Mapping[str, RewardPart], policy: Missing) -> dict[str, RewardPart]:
    """The gaps that cost a trajectory its reward, whatever happens to the group."""
    return {run: part for run, part in gaps.items() if policy == "exclude" or (policy == "drop_part" and part.of_run)}


def _by_run(gone: PartTable) -> dict[str, dict[str, RewardPart]]:
    """The missing parts of each trajectory."""
    runs = dict.fromkeys(run for lacks in gone.values() for run in lacks)
    return {run: {name: lacks[run] for name, lacks in gone.items() if run in lacks} for run in runs}


def _reasons(lacks: Mapping[str, RewardPart]) -> str:
    """Why a trajectory has no reward; parts that were not requested because of that are not listed."""
    asked = {name: part for name, part in lacks.items() if part is not _NOT_ASKED} or lacks
    return "; ".join(f"{name}: {part.explanation}" for name, part in asked.items())


UNASKED: Final = "no judge was asked: it ties the group, and no mean over trajectories includes it"


def combine_parts(runs: Sequence[str], found: PartTable, made: RewardParts) -> dict[str, RewardPart]:
    """The reward of each trajectory: the weighted mean of its parts minus its penalties; vetoed ones rank last.

    Every reward is finite and within ±`LIMIT`. The reward of a vetoed trajectory is 0, or the lowest reward that was
    not vetoed if that is lower: a veto never pays, whatever the penalties of others. A reward with a part that no judge
    was asked for says so.
    """
    own = {run: {r.name: found[r.name][run] for r in made.counting} for run in runs if run not in made.lacking}
    rewards = {run: _reward(parts, made.counting) for run, parts in own.items()}
    vetoes = {run: why for run, parts in own.items() if (why := _veto(parts, made.counting))}
    lowest = min([0.0, *(reward for run, reward in rewards.items() if run not in vetoes)])
    without = "; ".join(f"without {name}: {why}" for name, why in made.left.items()) or None
    out = {run: RewardPart(None, f"no reward: {why}") for run, why in made.lacking.items()}
    out |= {run: RewardPart(reward, without) for run, reward in rewards.items()}
    out |= {run: RewardPart(lowest, why) for run, why in vetoes.items()}
    unasked = {run for run, parts in own.items() if any(part.unasked for part in parts.values())}
    out |= {run: replace(out[run], explanation=_also(out[run], UNASKED), unasked=True) for run in unasked}
    return {run: out[run] for run in runs}


def _also(part: RewardPart, why: str) -> str:
    return f"{part.explanation}; {why}" if part.explanation else why


def _reward(parts: Mapping[str, RewardPart], counting: Sequence[RewardSettings]) -> float:
    """The weighted mean of a trajectory's scores, minus its penalties."""
    scores = [(r.weight, _value(parts[r.name])) for r in counting if r.effect == "score"]
    heaviest = max(weight for weight, _ in scores)
    shares = [weight / heaviest for weight, _ in scores]  # so no sum of weights overflows
    values = [value for _, value in scores]
    mean = math.fsum(s * value for s, value in zip(shares, values, strict=True)) / math.fsum(shares)
    mean = min(max(mean, min(values)), max(values))  # rounding may leave the range
    lost = [r.weight * _value(parts[r.name]) for r in counting if r.effect == "penalty"]
    return min(max(mean - sum(lost), -LIMIT), LIMIT)


def _veto(parts: Mapping[str, RewardPart], counting: Sequence[RewardSettings]) -> str | None:
    """The vetoes of a trajectory, if any."""
    vetoing = [r.name for r in counting if r.effect == "veto" and _value(parts[r.name]) > 0]
    reasons = (f"{name}: {parts[name].explanation}" if parts[name].explanation else name for name in vetoing)
    return f"vetoed by {'; '.join(reasons)}" if vetoing else None


def _value(part: RewardPart) -> float:
    assert part.value is not None, "a trajectory that lacks a counting part has no reward"
    return part.value


def recipe_hash(settings: JudgeSettings, *codes: str) -> str:
    """A hash of all that a reward depends on beside the trajectories: scores with one hash are comparable.

    `codes`: the hashes of the user's code, if any: of the reward functions, then of a rubric's checks.
    """
    recipe: dict[str, object] = {
        "rewards": [reward.model_dump(exclude={"missing"}) for reward in settings.in_force()],
        "missing": [settings.when_missing(reward) for reward in settings.in_force()],
        "judge": [settings.model, settings.temperature, settings.rubric, settings.max_context_chars, prompt.VERSION],
        "asked": [settings.api_base, settings.extra],
    }
    if settings.subscores:
        recipe["subscores"] = [sub.model_dump() for sub in settings.subscores]
    if settings.panel or settings.repeats > 1:
        members = [member.model_dump(exclude={"api_key"}) for member in settings.panel]
        recipe["panel"] = [members, settings.repeats, settings.combine]
    if any(reward.kind == "follow_up" for reward in settings.in_force()):
        recipe["follow_up"] = [settings.follow_up_wait_s, follow_up_prompt.VERSION]
    if any(reward.kind == "turns" for reward in settings.in_force()):
        recipe["turns"] = turn_critique.VERSION
    if code := [one for one in dict.fromkeys(codes) if one]:
        recipe["code"] = code
    return blake2b(json.dumps(recipe, sort_keys=True).encode(), digest_size=16).hexdigest()


def judge_hash(settings: JudgeSettings) -> str:
    """A hash of what `hone calibrate` measures of a recipe: its parts without people's feedback, with any code.

    Scores with one hash were made by the same judge.
    """
    rewards = [reward for reward in settings.in_force() if reward.kind != "feedback"]
    return recipe_hash(settings.model_copy(update={"rewards": rewards}))
