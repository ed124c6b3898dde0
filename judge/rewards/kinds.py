"""Where the parts of a reward come from: one function a kind, in one registry.

Owns: RULER with its cache, reward functions and feedback as parts of the reward. Refuses: how parts are combined
(`judge.scoring.combine`) and stored. A new kind is one function here, one line in `REWARDS`, one word in its settings.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judge.errors import JudgeMisconfigured, PartsMissing
from judge.llm.prompt import SEEDS, Prompt, Run, build_prompt
from judge.llm.ruler import Ask, Ruling, rank, recall
from judge.rewards.functions import FunctionPool
from judge.rewards.part import Part
from judge.rewards.rubric import RubricJudge, Subject
from judge.settings import JudgeSettings, RewardSettings
from recorder.content import canonical
from recorder.content.alike import mask_message
from recorder.reading.views import FeedbackView, GroupView, TrajectoryView
from recorder.rubric import words
from recorder.states import Origin
from recorder.work.scores import StoredScore

Recall = Callable[[str], Awaitable[StoredScore | None]]


async def nothing_known(prompt_hash: str) -> StoredScore | None:
    """A cache without a score."""
    return None


@dataclass(frozen=True, slots=True)
class Bench:
    """What scoring needs beside the group: the settings, who is asked, who runs functions, the cache."""

    settings: JudgeSettings
    ask: Ask | None
    functions: FunctionPool | None
    known: Recall = nothing_known  # by prompt hash, under this recipe
    rubrics: RubricJudge | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What one kind found: a part for each trajectory it applies to, and the judge's ruling if it was asked.

    `code`: the hash of the user's code that was asked, if any was.
    """

    parts: Mapping[str, Part]
    prompt: Prompt | None = None
    ruling: Ruling | None = None
    code: str = ""


Kind = Callable[[RewardSettings, GroupView, Sequence[TrajectoryView], Bench], Awaitable[Judged]]


async def by_functions(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """Your own code looks at each trajectory by itself."""
    if bench.functions is None:
        raise JudgeMisconfigured(f"there is no process to run {reward.function} in")
    code = await bench.functions.code()
    results = await asyncio.gather(*(bench.functions.call(reward.function, for_function(m)) for m in members))
    return Judged(
        {m.id: Part(r.score, r.explanation, r.extra) for m, r in zip(members, results, strict=True)}, code=code
    )


def for_function(member: TrajectoryView) -> dict[str, Any]:
    """What a reward function sees of a trajectory, as JSON."""
    scenario = member.scenario
    return {
        "id": member.id,
        "messages": [dict(message) for message in member.messages],
        "tools": [dict(tool) for tool in member.tools or ()],
        "answer": member.answer,
        "tags": dict(member.tags),
        "scenario": scenario
        and {
            "id": scenario.id,
            "split": scenario.split,
            "input": scenario.input,
            "reference": scenario.reference,
            "rubric": scenario.rubric,
        },
    }


async def by_feedback(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """What users said through the feedback API: the newest value of that name.

    Raises:
        PartsMissing: somebody said nothing yet, and `judge.feedback.wait_s` is not over.
    """
    parts = {member.id: feedback_part(reward.name, member.feedback) for member in members}
    left_s = max(m.ended_at or m.last_call_at for m in members) + bench.settings.feedback.wait_s - time.time()
    if reward.weight > 0 and left_s > 0 and any(part.value is None for part in parts.values()):
        raise PartsMissing("waiting_for_feedback", f"feedback {reward.name!r} may still come", wait_s=left_s)
    return Judged(parts)


def feedback_part(name: str, feedback: Sequence[FeedbackView]) -> Part:
    """The newest feedback of a name as a number; true is 1, false is 0."""
    named = [said for said in feedback if said.name == name]
    if not named:
        return Part(None, f"no feedback {name!r}")
    newest = max(named, key=lambda said: said.created_at)
    if not isinstance(newest.value, bool | int | float):
        return Part(None, f"feedback {name!r} is no number")
    return Part(float(newest.value), newest.comment)


async def by_ruler(reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench) -> Judged:
    """The judge model compares the group. It applies to no group of one: there is nobody to compare with.

    A stored reply to the same prompt under the same recipe is read again instead of asking.
    """
    if len(members) < 2:
        return Judged({})
    if bench.ask is None:
        raise JudgeMisconfigured("RULER needs a judge model: set judge.model")
    prompt = await _prompt(group, members, bench.settings, random.SystemRandom().randrange(SEEDS))
    stored = await bench.known(prompt.hash)
    if stored is not None and stored.reply is not None and stored.order_seed is not None:
        # Ids and order follow from the seed, so under the stored one the stored reply means these trajectories.
        as_stored = await _prompt(group, members, bench.settings, stored.order_seed)
        ruling = recall(as_stored, stored.reply, stored.judge_version)
        if ruling is not None:
            return _judged(as_stored, ruling)
    return _judged(prompt, await rank(prompt, bench.ask))


async def _prompt(group: GroupView, members: Sequence[TrajectoryView], settings: JudgeSettings, seed: int) -> Prompt:
    runs = [Run(member.id, member.messages, member.tools) for member in members]
    rubric = words(group.scenario.rubric) if group.scenario else None
    # Megabytes of tool outputs take a while to cut to size: off the loop, which renews leases.
    return await asyncio.to_thread(
        build_prompt,
        runs,
        rubric=settings.rubric,
        seed=seed,
        max_chars=settings.max_context_chars,
        task_rubric=rubric,
        alike=_are_alike(group, members),
        step=is_one_step(members),
    )


def _are_alike(group: GroupView, members: Sequence[TrajectoryView]) -> bool:
    """Whether a group that nobody named holds tasks that differ in what `recorder.same_task = "normalised"` masks.

    A run that rewrote its history may begin with anything, and was given the same task all the same.
    """
    openings = [canonical.opening(member.messages) for member in members]
    exact = {canonical.dumps(opening) for opening in openings}
    masked = {canonical.dumps([mask_message(message) for message in opening]) for opening in openings}
    return group.external_id is None and len(exact) > 1 == len(masked)


def is_one_step(members: Sequence[TrajectoryView]) -> bool:
    """Whether all are answers to one turn, none of which was gone on with (`recorder.groups.shadows`)."""
    return all(member.origin is Origin.SHADOW for member in members)


def _judged(prompt: Prompt, ruling: Ruling) -> Judged:
    parts = {name: Part(verdict.score, verdict.explanation) for name, verdict in ruling.verdicts.items()}
    return Judged(parts, prompt, ruling)


async def by_rubric(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """The judge model, or code, says which criteria of its scenario each run meets: one request a run."""
    if bench.rubrics is None:
        raise JudgeMisconfigured("a rubric needs a judge model: set judge.model")
    runs = [_subject(member, group) for member in members]
    found = await bench.rubrics.judge(runs, evidence=reward.evidence)
    ruling = Ruling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return Judged(found.parts, ruling=ruling)


def _subject(member: TrajectoryView, group: GroupView) -> Subject:
    scenario = member.scenario or group.scenario
    return Subject(member.id, member.messages, member.tools, scenario and scenario.rubric, for_function(member))


# Cheap kinds come first: the judge is not paid for a group that cannot be scored anyway.
REWARDS: Mapping[str, Kind] = {
    "feedback": by_feedback,
    "function": by_functions,
    "ruler": by_ruler,
    "rubric": by_rubric,
}
