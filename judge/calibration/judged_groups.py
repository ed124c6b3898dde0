"""Judge labelled groups with one judge: each trajectory's score and position in the prompt, and the usage.

Owns: resolving a judge's name, judging without writing, how many groups at once. Refuses: scoring a group
(`judge.scoring.group_score`) and labels: none is read here, so none can reach a prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from judge.errors import JudgeDown, JudgeFailed, JudgeMisconfigured, JudgeUnavailable, JudgeUsage
from judge.llm.repair import Ask
from judge.panel_settings import BASE
from judge.rewards.judge_context import JudgeContext
from judge.scoring.group_score import GroupScore, score_group
from judge.scoring.setup import open_judge_context, without_people
from judge.settings import DEFAULT, JudgeSettings
from recorder.messages.plain_text import text_parts
from recorder.store.database import Project
from recorder.views.trajectories.shapes import GroupView, TrajectoryView


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """One group judged by one judge, by trajectory ids; without scores, `why` gives the reason.

    `places`: the position of each trajectory in the prompt; empty if they were judged one by one. `lengths`: characters
    written by the agent. `judge_hash`: as a score of this judge has it; None: no model's verdict is in the rewards.
    """

    group: str
    scores: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    why: str | None = None
    spent: JudgeUsage = field(default_factory=JudgeUsage)
    seconds: float = 0.0
    judge_hash: str | None = None


def judge_settings(settings: JudgeSettings, name: str) -> JudgeSettings:
    """The settings of a judge by name: a recipe, or a model by its LiteLLM name, which judges by `default`.

    `base` judges by `default` too, and is asked through a running proxy.

    Raises JudgeMisconfigured.
    """
    if name in settings.known_recipes():
        return without_people(settings, name)
    if name != BASE and "/" not in name:
        known = ", ".join(settings.known_recipes())
        raise JudgeMisconfigured(
            f"{name!r:.80} is not a judge: name a recipe ({known}), a model by its LiteLLM name, or base"
        )
    reached = {"api_base": None, "api_key": None} if name == BASE else {}
    alone: dict[str, Any] = {"model": name, "panel": [], "quorum": None, "min_agreement": None, **reached}
    return without_people(settings.model_copy(update=alone), DEFAULT)


async def judge_all(
    project: Project,
    groups: Sequence[GroupView],
    settings: JudgeSettings,
    tell: Callable[[JudgedGroup], None],
    ask: Ask | None = None,
    orders: Mapping[str, int] | None = None,
) -> list[JudgedGroup]:
    """Judge every group anew without saving; `tell` is called for each, `ask` replaces the model.

    `orders`: by group id, the seed of the order of its trajectories; otherwise drawn.

    Raises:
        JudgeDown: no group could be judged, because the judge was down.
        JudgeMisconfigured, FunctionsDown: as in scoring.
    """
    async with open_judge_context(settings, project, keep=False, again=True, ask=ask) as context:
        room = asyncio.Semaphore(settings.concurrency)
        own = [
            replace(context, order_seed=partial(orders.__getitem__, group.id)) if orders else context
            for group in groups
        ]
        judged = await asyncio.gather(*(_judged(group, at, room, tell) for group, at in zip(groups, own, strict=True)))
    down = [one for one in judged if isinstance(one, JudgeDown)]
    if down and len(down) == len(judged):
        raise down[0]
    return [
        JudgedGroup(group.id, why=str(one), spent=one.spent) if isinstance(one, JudgeDown) else one
        for group, one in zip(groups, judged, strict=True)
    ]


async def _judged(
    group: GroupView, context: JudgeContext, room: asyncio.Semaphore, tell: Callable[[JudgedGroup], None]
) -> JudgedGroup | JudgeDown:
    async with room:
        began = time.monotonic()
        try:
            scored = await score_group(_by_this(group), context)
        except JudgeDown as e:
            tell(JudgedGroup(group.id, why=str(e)))
            return e
        except (JudgeFailed, JudgeUnavailable) as e:
            found = JudgedGroup(group.id, why=str(e), spent=e.spent if isinstance(e, JudgeFailed) else JudgeUsage())
        else:
            found = _seen(group, scored, time.monotonic() - began)
    tell(found)
    return found


def _by_this(group: GroupView) -> GroupView:
    """The group as if its campaign named the tested recipe; its alias decides which base judges."""
    return replace(group, judge_recipe=DEFAULT)


def _seen(group: GroupView, scored: GroupScore, seconds: float) -> JudgedGroup:
    new = scored.new
    order = [member for members in scored.prompt.ids.values() for member in members] if scored.prompt else []
    return JudgedGroup(
        group.id,
        scores={id_: part.value for id_, part in scored.rewards.items() if part.value is not None},
        places={id_: place for place, id_ in enumerate(order)},
        lengths={member.id: written_characters(member) for member in group.members},
        spent=JudgeUsage(new.tokens_in, new.tokens_cached, new.tokens_out, new.cost_usd, new.latency_s or 0.0),
        seconds=seconds,
        judge_hash=new.judge_hash,
    )


def written_characters(member: TrajectoryView) -> int:
    """The number of characters the agent wrote, without tool results."""
    answers = (message for message in member.messages if message.get("role") == "assistant")
    return sum(len(text) for message in answers for text in text_parts(message))
