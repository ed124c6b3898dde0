"""The kind `ruler`: the judge model compares the members of a group with one another.

Owns: whether anybody need be asked, and reading a reply that is at hand. Refuses: prompts (`judge.llm.prompt`) and
asking (`judge.llm.ruler`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from judge.errors import FunctionsDown, JudgeMisconfigured
from judge.llm.prompt import TOO_LONG, Prompt, build_prompt
from judge.llm.ruler import Ruling, rank, recall, unasked
from judge.llm.shown import run_of
from judge.rewards.by_rubric import checks_of
from judge.rewards.kind import Bench, Judged
from judge.rewards.part import Part
from judge.settings import JudgeSettings, RewardSettings
from recorder.content import canonical
from recorder.content.alike import mask_message
from recorder.groups.readiness import MEASURED
from recorder.reading.views import GroupView, TrajectoryView
from recorder.rubric import words
from recorder.states import Origin


async def by_ruler(reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench) -> Judged:
    """The judge model compares the group. It applies to no group of one: there is nobody to compare with.

    A stored reply to the same prompt under the same recipe is read again instead of asking. Nobody is asked about runs
    that are one and the same, unless they are measured.
    """
    if len(members) < 2:
        return Judged({})
    if bench.ask is None:
        raise JudgeMisconfigured("RULER needs a judge model: set judge.model")
    prompt = await _prompt(group, members, bench.settings, bench.order_seed())
    if len(prompt.ids) == 1 and not all(member.purpose in MEASURED for member in members):
        return _judged(prompt, unasked(prompt))
    checks = await _checks(group, bench)
    at_hand = await bench.replies.known(prompt.hash, checks)
    if at_hand is not None:
        # Ids and order follow from the seed, so under the stored one the stored reply means these trajectories.
        as_stored = await _prompt(group, members, bench.settings, at_hand.order_seed)
        recalled = await recall(as_stored, at_hand.text, at_hand.judge_version)
        if recalled is not None:
            return _judged(as_stored, recalled)
    ruling = await rank(prompt, bench.ask)
    await bench.replies.keep(prompt, ruling, checks)
    return _judged(prompt, ruling)


async def _checks(group: GroupView, bench: Bench) -> str:
    """The hash of the code that decides the group's criteria, where its recipe has a rubric: it is of the recipe."""
    if bench.rubrics is None or not any(reward.kind == "rubric" for reward in bench.settings.in_force()):
        return ""
    with suppress(FunctionsDown):  # the rubric's own part says so
        return await bench.rubrics.code(checks_of(group))
    return ""


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
    none_asked = ruling.reply is None
    parts = {name: Part(v.score, v.explanation, unasked=none_asked) for name, v in ruling.verdicts.items()}
    parts |= {name: Part(None, TOO_LONG) for name in prompt.too_long}
    return Judged(parts, prompt, ruling)
