"""Where the parts of a reward come from: one function a kind, in one registry.

Owns: RULER with the replies at hand, rules, reward functions and feedback as parts of the reward. Refuses: how parts
are combined (`judge.scoring.combine`) and stored. A new kind is one function here, one line in `REWARDS`, one word in
its settings.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from judge.errors import JudgeFailed, JudgeMisconfigured, PartsMissing
from judge.llm.prompt import SEEDS, TOO_LONG, Prompt, build_prompt
from judge.llm.ruler import Ask, Ruling, rank, recall, unasked
from judge.llm.shown import run_of
from judge.rewards.functions import FunctionPool, for_function
from judge.rewards.part import Part
from judge.rewards.rubric import RubricJudge, Subject
from judge.rewards.rule import check
from judge.settings import JudgeSettings, RewardSettings
from recorder.content import canonical
from recorder.content.alike import mask_message
from recorder.groups.readiness import MEASURED
from recorder.reading.views import FeedbackView, GroupView, TrajectoryView
from recorder.rubric import words
from recorder.states import Origin


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply that is at hand, and what is needed to read it again."""

    text: str
    order_seed: int
    judge_version: str | None


class Replies:
    """Replies that were paid for, under the recipe in force. This one has none and keeps none."""

    async def known(self, prompt_hash: str) -> Reply | None:
        """The reply to an equal prompt."""
        return None

    async def keep(self, prompt: Prompt, ruling: Ruling) -> None:
        """Have a reply at hand, whatever becomes of the score that is made of it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What scoring needs beside the group: the settings, who is asked, who runs functions, replies at hand."""

    settings: JudgeSettings
    ask: Ask | None
    functions: FunctionPool | None
    replies: Replies = field(default_factory=Replies)
    rubrics: RubricJudge | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What one kind found: a part for each trajectory it applies to, and the judge's ruling if it was asked.

    `code`: the hash of the user's code that was asked, if any was. `failed`: what kept it from finding any value.
    """

    parts: Mapping[str, Part]
    prompt: Prompt | None = None
    ruling: Ruling | None = None
    code: str = ""
    failed: JudgeFailed | None = None


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


async def by_rule(reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench) -> Judged:
    """What Hone checks by itself."""
    assert reward.rule is not None
    checked = [await asyncio.to_thread(check, reward.rule, reward.value, member) for member in members]
    return Judged({member.id: part for member, part in zip(members, checked, strict=True)})


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
    """The newest feedback of a name as a number; true is 1, false is 0. That it is missing is no run's doing."""
    named = [said for said in feedback if said.name == name]
    if not named:
        return Part(None, f"no feedback {name!r}", of_run=False)
    newest = max(named, key=lambda said: said.created_at)
    if not isinstance(newest.value, bool | int | float):
        return Part(None, f"feedback {name!r} is no number", of_run=False)
    return Part(float(newest.value), newest.comment, of_run=False)


async def by_ruler(reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench) -> Judged:
    """The judge model compares the group. It applies to no group of one: there is nobody to compare with.

    A stored reply to the same prompt under the same recipe is read again instead of asking. Nobody is asked about runs
    that are one and the same, unless they are measured.
    """
    if len(members) < 2:
        return Judged({})
    if bench.ask is None:
        raise JudgeMisconfigured("RULER needs a judge model: set judge.model")
    prompt = await _prompt(group, members, bench.settings, random.SystemRandom().randrange(SEEDS))
    if len(prompt.ids) == 1 and not all(member.purpose in MEASURED for member in members):
        return _judged(prompt, unasked(prompt))
    at_hand = await bench.replies.known(prompt.hash)
    if at_hand is not None:
        # Ids and order follow from the seed, so under the stored one the stored reply means these trajectories.
        as_stored = await _prompt(group, members, bench.settings, at_hand.order_seed)
        recalled = await recall(as_stored, at_hand.text, at_hand.judge_version)
        if recalled is not None:
            return _judged(as_stored, recalled)
    ruling = await rank(prompt, bench.ask)
    await bench.replies.keep(prompt, ruling)
    return _judged(prompt, ruling)


async def _prompt(group: GroupView, members: Sequence[TrajectoryView], settings: JudgeSettings, seed: int) -> Prompt:
    runs = [run_of(member) for member in members]
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
    parts |= {name: Part(None, TOO_LONG) for name in prompt.too_long}
    return Judged(parts, prompt, ruling)


async def by_rubric(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """The judge model, or code, says which criteria of its scenario each run meets: at most one request a run."""
    if bench.rubrics is None:
        raise JudgeMisconfigured("a rubric needs a judge model: set judge.model")
    runs = [_subject(member, group) for member in members]
    found = await bench.rubrics.judge(runs, evidence=reward.evidence)
    ruling = Ruling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return Judged(found.parts, ruling=ruling)


def _subject(member: TrajectoryView, group: GroupView) -> Subject:
    scenario = member.scenario or group.scenario
    return Subject(member.id, run_of(member), scenario and scenario.rubric, member)


# Cheap kinds come first: the judge is not paid for a group that cannot be scored anyway.
REWARDS: Mapping[str, Kind] = {
    "rule": by_rule,
    "feedback": by_feedback,
    "function": by_functions,
    "ruler": by_ruler,
    "rubric": by_rubric,
}
