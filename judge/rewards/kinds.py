"""The reward kinds, and their registry in the order in which they are evaluated.

`rubric`, `turns` and `ruler` ask a judge model: `rubric` checks each trajectory against its scenario's criteria,
`turns` rates each of its turns, `ruler` compares the members of a group. `follow_up` reads what came next, by rules or
a judge model. `feedback` comes from users through the API, `function` is the user's code, `rule` is a check by Hone. A
new kind is a function, one line in the registry, and one word in the `kind` of `judge.settings`.

Owns: whether a request is needed, with which prompts, and whether the replies agree enough to be a score. Refuses:
rubrics, rules and running functions (the modules beside it), prompts (`judge.llm.prompt`), asking and combining replies
(`judge.llm.panel`), and storing feedback (`recorder.queue.feedback`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from judge.errors import FunctionsDown, JudgeMisconfigured, PartsMissing
from judge.llm.group_text import prompt_trajectory
from judge.llm.panel import PanelReply, ask_panel, combine_verdicts, reply_agreement, require_quorum, total_usage
from judge.llm.prompt import ALONE, TOO_LONG, GroupPrompt, JudgeRequest, build_prompt, judge_requests
from judge.llm.ruler import GroupRuling, identical_ruling
from judge.rewards.follow_ups import wait_left
from judge.rewards.functions import RewardResult, function_input
from judge.rewards.human_choice import human_choices
from judge.rewards.judge_context import JudgeContext, Kind, KindResult
from judge.rewards.part import RewardPart
from judge.rewards.rubrics import RubricSubject
from judge.rewards.rules import check_rule
from judge.rewards.turns import TurnSubject, read_turns
from judge.settings import ONE_BY_ONE, JudgeSettings, RewardSettings
from recorder.llm.rubric import check_functions, rubric_text
from recorder.messages import content_hashes
from recorder.messages.text_masking import mask_message
from recorder.queue.feedback import BY_PERSON
from recorder.queue.groups.readiness import MEASURED
from recorder.queue.judging.turn_values import turn_extra
from recorder.states import Origin
from recorder.views.trajectories.shapes import FeedbackView, GroupView, TrajectoryView


async def by_rubric(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """The criteria that each trajectory meets, by the judge model or by code: at most one request a trajectory."""
    if context.rubrics is None:
        raise JudgeMisconfigured("this judge context was opened without a reward of kind rubric")
    runs = [_subject(member, group) for member in members]
    found = await context.rubrics.judge(runs, checks_of(group), evidence=reward.evidence)
    ruling = GroupRuling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return KindResult(found.parts, ruling=ruling, code=found.code, run_prompts=found.prompts)


def checks_of(group: GroupView) -> frozenset[str]:
    """The functions that decide criteria of a group, for any of its members."""
    scenarios = (group.scenario, *(member.scenario for member in group.members))
    return check_functions(scenario.rubric for scenario in scenarios if scenario is not None)


def _subject(member: TrajectoryView, group: GroupView) -> RubricSubject:
    scenario = member.scenario or group.scenario
    return RubricSubject(member.id, prompt_trajectory(member), scenario and scenario.rubric, member)


NOT_CHOSEN: Final = "judges disagreed about the group, and no human choice covers this trajectory"


async def by_ruler(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """The judges compare the group. It does not apply to a group of one.

    Stored replies to the same prompt under the same recipe are reused. Identical trajectories are not sent to a judge,
    unless they are measured.
    """
    if len(members) < 2:
        return KindResult({})
    if not context.judges:
        raise JudgeMisconfigured("RULER needs a judge model: set judge.model, or name a [[judge.panel]]")
    seed = context.order_seed()
    prompt = await _prompt(group, members, context.settings, seed, ALONE)
    if len(prompt.ids) == 1 and not all(member.purpose in MEASURED for member in members):
        return _unasked(prompt)
    checks = await _checks(group, context)
    at_hand = await context.replies.known(prompt.hash, checks)
    # Ids and order follow from the seed, so under the stored one the stored replies mean these trajectories.
    prompts = await _prompts(group, members, context, prompt, at_hand.order_seed if at_hand else seed)
    if at_hand is not None and at_hand.whole and len(at_hand.replies) >= context.settings.needed:
        prompts = [one for one in prompts if one.turn.number in at_hand.replies]
    replies = await ask_panel(
        prompts, context.judges, at_hand.replies if at_hand else {}, lambda p, r: context.replies.keep(p, r, checks)
    )
    require_quorum(replies, context.settings.needed)
    return _judged(group, members, replies, context.settings)


async def _checks(group: GroupView, context: JudgeContext) -> str:
    """The hash of the code that decides the group's criteria, if its recipe has a rubric."""
    if context.rubrics is None or not any(reward.kind == "rubric" for reward in context.settings.in_force()):
        return ""
    with suppress(FunctionsDown):  # the rubric's own part reports it
        return await context.rubrics.code(checks_of(group))
    return ""


async def _prompts(
    group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext, first: GroupPrompt, seed: int
) -> list[GroupPrompt]:
    """The prompts about the group, one for each request; `first` is the first of them if its seed is `seed`."""
    asked = judge_requests(len(context.judges), context.settings.repeats)
    made = [await _prompt(group, members, context.settings, seed, turn) for turn in asked[first.seed == seed :]]
    return [first, *made] if len(made) < len(asked) else made


async def _prompt(
    group: GroupView, members: Sequence[TrajectoryView], settings: JudgeSettings, seed: int, turn: JudgeRequest
) -> GroupPrompt:
    runs = [prompt_trajectory(member) for member in members]
    rubric = rubric_text(group.scenario.rubric) if group.scenario else None
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
        turn=turn,
        subscores=settings.subscores,
    )


def _are_alike(group: GroupView, members: Sequence[TrajectoryView]) -> bool:
    """Whether a group without a name holds tasks that differ in what `recorder.same_task = "normalised"` masks.

    A trajectory that rewrote its history may begin with any message although it had the same task.
    """
    openings = [content_hashes.hash_first_turns(member.messages) for member in members]
    exact = {content_hashes.canonical_json(opening) for opening in openings}
    masked = {content_hashes.canonical_json([mask_message(message) for message in opening]) for opening in openings}
    return group.external_id is None and len(exact) > 1 == len(masked)


def is_one_step(members: Sequence[TrajectoryView]) -> bool:
    """Whether all are answers to one call, none of which was continued (`recorder.queue.groups.same_request`)."""
    return all(member.origin is Origin.SHADOW for member in members)


def _unasked(prompt: GroupPrompt) -> KindResult:
    ruling = identical_ruling(prompt)
    parts = {name: RewardPart(v.score, v.explanation, unasked=True) for name, v in ruling.verdicts.items()}
    return KindResult(parts | _without(prompt.too_long, TOO_LONG), prompt, ruling)


def _judged(
    group: GroupView, members: Sequence[TrajectoryView], replies: Sequence[PanelReply], settings: JudgeSettings
) -> KindResult:
    """The combined readable replies; if they disagree, the human choice, else the disagreement."""
    read = [(one.weight, one.ruling) for one in replies if one.ruling is not None]
    verdicts = combine_verdicts(
        [(weight, ruling.verdicts) for weight, ruling in read], settings.combine, settings.subscores
    )
    agree = reply_agreement([ruling.verdicts for _, ruling in read])
    prompt = replies[0].prompt
    parts = {
        name: RewardPart(
            v.score,
            v.explanation,
            {sub: one.score for sub, one in v.subs.items()},
            {sub: one.reason for sub, one in v.subs.items()},
        )
        for name, v in verdicts.items()
    }
    parts |= _without((id_ for members in prompt.ids.values() for id_ in members if id_ not in parts), TOO_LONG)
    judged = KindResult(
        parts | _without(prompt.too_long, TOO_LONG),
        prompt,
        _whole(replies, [ruling for _, ruling in read]) if settings.requests > 1 else read[0][1],
        replies=replies if settings.requests > 1 else (),
        agreement=agree,
    )
    return _settled(judged, group, members, settings)


def _without(ids: Iterable[str], why: str) -> dict[str, RewardPart]:
    return {id_: RewardPart(None, why) for id_ in ids}


def _whole(replies: Sequence[PanelReply], read: Sequence[GroupRuling]) -> GroupRuling:
    """All requests as one ruling; its verdicts are those of the parts."""
    versions = dict.fromkeys(ruling.version for ruling in read if ruling.version)
    asked = sum(ruling.asked for ruling in read)
    return GroupRuling({}, None, " + ".join(sorted(versions)) or None, total_usage(replies), asked)


def _settled(
    judged: KindResult, group: GroupView, members: Sequence[TrajectoryView], settings: JudgeSettings
) -> KindResult:
    """The same result if the replies agree enough; otherwise human choices as parts, or a dispute."""
    bound = settings.min_agreement
    if bound is None or judged.agreement is None or judged.agreement >= bound:
        return judged
    low = f"the judges agree by {judged.agreement:.2f} (mean tau-b over pairs of replies), below {bound:g}"
    choice = human_choices(group.id, {member.id: member.feedback for member in members})
    if not choice:
        why = f"{low} (judge.min_agreement): a person's choice scores the group (`hone review`)"
        return replace(judged, disputed=why)
    parts = {
        id_: RewardPart(one.value, f"{one.why}; {low}", {BY_PERSON: one.value}, {BY_PERSON: one.why})
        for id_, one in choice.items()
    }
    missing = (member.id for member in members if member.id not in choice)
    parts |= {id_: RewardPart(None, NOT_CHOSEN, of_run=False) for id_ in missing}
    return replace(judged, parts=parts, chosen=True)


async def by_feedback(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """Feedback from users through the API: the newest value of that name.

    Raises:
        PartsMissing: feedback is missing, and `judge.feedback.wait_s` is not over.
    """
    parts = {member.id: feedback_of_turns(reward.name, member) for member in members}
    left_s = max(m.ended_at or m.last_call_at for m in members) + context.settings.feedback.wait_s - time.time()
    if reward.weight > 0 and left_s > 0 and any(part.value is None for part in parts.values()):
        raise PartsMissing("waiting_for_feedback", f"feedback {reward.name!r} is still awaited", wait_s=left_s)
    return KindResult(parts)


def feedback_part(name: str, feedback: Sequence[FeedbackView]) -> RewardPart:
    """The newest feedback of a name as a number; true is 1, false is 0. Its absence is not the trajectory's fault."""
    named = [one for one in feedback if one.name == name]
    if not named:
        return RewardPart(None, f"no feedback {name!r}", of_run=False)
    newest = max(named, key=lambda one: one.created_at)
    if not isinstance(newest.value, bool | int | float):
        return RewardPart(None, f"feedback {name!r} is not a number", of_run=False)
    return RewardPart(float(newest.value), newest.comment, of_run=False)


def feedback_of_turns(name: str, member: TrajectoryView) -> RewardPart:
    """The same for a trajectory, with the newest feedback on each turn of its main path beside it."""
    part = feedback_part(name, member.feedback)
    extra = {}
    for number, (call_id, _) in enumerate(member.main_path, 1):
        on_call = feedback_part(name, [one for one in member.feedback if one.call_id == call_id])
        if on_call.value is not None:
            extra[turn_extra(number)] = on_call.value
    return replace(part, extra=extra)


async def by_follow_up(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """What came next after each trajectory's answers: at most one request a trajectory.

    Raises:
        PartsMissing: nothing came yet after some trajectory's last answer, and `judge.follow_up_wait_s` is not over.
    """
    if context.follow_ups is None:
        raise JudgeMisconfigured("this judge context was opened without a reward of kind follow_up")
    subjects = await context.follow_ups.read(members)
    wait_s = wait_left(members, subjects, context.settings.follow_up_wait_s)
    if reward.weight > 0 and wait_s is not None:
        raise PartsMissing("waiting_for_follow_up", "users may still write next", wait_s=wait_s)
    found = await context.follow_ups.judge(subjects)
    ruling = GroupRuling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return KindResult(found.parts, ruling=ruling, run_prompts=found.prompts)


async def by_turns(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """A value and a critique for each turn of each trajectory, by the judge model: at most one request a trajectory."""
    if context.turns is None:
        raise JudgeMisconfigured("a reward of kind turns needs a judge model: set judge.model")
    subjects = await asyncio.to_thread(_turns_of, group, members)
    found = await context.turns.judge(subjects)
    ruling = GroupRuling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return KindResult(found.parts, ruling=ruling, run_prompts=found.prompts)


def _turns_of(group: GroupView, members: Sequence[TrajectoryView]) -> list[TurnSubject]:
    scenarios = [member.scenario or group.scenario for member in members]
    return [read_turns(one, scenario and scenario.rubric) for one, scenario in zip(members, scenarios, strict=True)]


async def by_function(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """The user's code rates each trajectory by itself."""
    if context.functions is None:
        raise JudgeMisconfigured(f"there is no process to run {reward.function} in")
    code = await context.functions.code()
    results = await asyncio.gather(*(context.functions.call(reward.function, function_input(m)) for m in members))
    parts = {member.id: function_part(member, one) for member, one in zip(members, results, strict=True)}
    return KindResult(parts, code=code)


def function_part(member: TrajectoryView, result: RewardResult) -> RewardPart:
    """The result of a reward function about a trajectory; missing if it rates another number of turns."""
    if result.turns is None or result.score is None:
        return RewardPart(result.score, result.explanation, result.extra, undecided=result.score is None)
    if (count := len(member.main_path)) != len(result.turns):
        why = f"'turns' has {len(result.turns)} values, and the trajectory has {count} turns"
        return RewardPart(None, why, undecided=True)
    values = {turn_extra(number): value for number, value in enumerate(result.turns, 1) if value is not None}
    return RewardPart(result.score, result.explanation, {**result.extra, **values})


async def by_rule(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """A check by Hone itself."""
    assert reward.rule is not None
    checked = [await asyncio.to_thread(check_rule, reward.rule, reward.value, member) for member in members]
    return KindResult({member.id: part for member, part in zip(members, checked, strict=True)})


# Cheap kinds come first: the judge is not paid for a group that cannot be scored anyway.
REWARDS: Mapping[str, Kind] = {
    "rule": by_rule,
    "feedback": by_feedback,
    "follow_up": by_follow_up,
    "function": by_function,
    "ruler": by_ruler,
    "rubric": by_rubric,
    "turns": by_turns,
}
BY_MODEL: Final = ONE_BY_ONE | {"ruler"}  # the kinds that ask a judge model
