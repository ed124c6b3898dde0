"""Setting up what scoring needs, from the settings: the judge model, the processes of reward functions, replies.

Owns: opening and closing them, and refusing settings under which nobody could judge. Refuses: scoring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from judge.errors import JudgeMisconfigured
from judge.llm.model import Answer, JudgeModel, Messages
from judge.llm.rubric import reply_format
from judge.llm.ruler import Ask
from judge.llm.subscores import reply_format as reply_format_of
from judge.panel.asking import Judge
from judge.rewards.coded import CodeJudges
from judge.rewards.functions import FunctionPool
from judge.rewards.kind import Bench
from judge.rewards.known import Known
from judge.rewards.rubric import RubricJudge
from judge.scoring.combine import recipe_hash
from judge.scoring.replies import KeptReplies
from judge.settings import DEFAULT, JudgeSettings
from recorder.rules import unusable
from recorder.store.database import Store


def check_settings(settings: JudgeSettings) -> None:
    """Raise JudgeMisconfigured where nobody could judge, or a part of a recipe's reward cannot be found out."""
    if not settings.in_force() and not settings.recipes:
        raise JudgeMisconfigured(
            "nobody judges: set judge.model to a LiteLLM name (HONE_JUDGE__MODEL=openai/…, with its key in "
            "HONE_JUDGE__API_KEY or the provider's own variable), or name reward functions in [[judge.rewards]]"
        )
    _check_rewards("judge", settings)
    for name in settings.recipes:
        recipe, at = settings.by_recipe(name), f"judge.recipes.{name}"
        if not recipe.in_force():
            raise JudgeMisconfigured(
                f"{at} has no rewards: name some in [[{at}.rewards]], or set judge.model for RULER"
            )
        _check_rewards(at, recipe)


def told_parts(recipe: JudgeSettings) -> str:
    """What a recipe's reward is made of, as people are told."""
    return ", ".join(f"{reward.name} x {reward.weight:g}" for reward in recipe.in_force())


def _check_rewards(at: str, recipe: JudgeSettings) -> None:
    for number, reward in enumerate(recipe.in_force()):
        if reward.kind == "ruler" and not recipe.members:  # a rubric's criteria may all be decided by code
            raise JudgeMisconfigured(
                f"{at}.rewards holds RULER but no model judges: set judge.model, or name a [[judge.panel]], or take "
                "that reward out"
            )
        if reward.rule is not None and (why := unusable(reward.rule, reward.value)):
            raise JudgeMisconfigured(f"{at}.rewards[{number}].value of the rule {reward.rule!r} {why}")


@asynccontextmanager
async def open_bench(
    settings: JudgeSettings,
    store: Store,
    project_id: str,
    *,
    keep: bool = True,
    again: bool = False,
    ask: Ask | None = None,
) -> AsyncIterator[Bench]:
    """What scoring needs, until the end of the block; with `keep` false scoring itself writes nothing.

    All recipes have one judge model or panel, and each judge one pace. Those with the same reward functions share
    their processes; others do not: code that one recipe does not ask is no part of it, and cannot keep it from judging.

    `again`: the judge is asked in spite of what it said before. `ask`: who is asked in place of the settings' judge.

    Raises JudgeMisconfigured.
    """
    check_settings(settings)
    async with AsyncExitStack() as stack:
        asking = _Asking(settings, stack, ask)
        recipes = {name: settings.by_recipe(name) for name in settings.known_recipes()}
        rewards = [reward for recipe in recipes.values() for reward in recipe.in_force()]
        judges = await asking.panel() if any(reward.kind == "ruler" for reward in rewards) else []
        rubrics = None
        if any(reward.kind == "rubric" for reward in rewards):
            quoting = {reward.evidence for reward in rewards if reward.kind == "rubric" and settings.model}
            asks = {evidence: await asking.by(reply_format(evidence=evidence)) for evidence in quoting}
            code = CodeJudges(settings)
            stack.push_async_callback(code.close)
            known = Known(settings, store, project_id, keep=keep)
            rubrics = RubricJudge(settings, asks, code, known)
        pools = _Pools(stack)

        def bench(name: str) -> Bench:
            functions = pools.of(recipes[name])
            replies = KeptReplies(store, project_id, recipes[name], functions)
            return Bench(recipes[name], judges, functions, replies, rubrics, name)

        made = replace(bench(DEFAULT), others={name: bench(name) for name in settings.recipes})
        yield made.afresh() if again else made


class _Asking:
    """The judge model, asked for replies of several forms; as many requests are open at a time as the settings say.

    `instead`: who is asked in its place.
    """

    def __init__(self, settings: JudgeSettings, stack: AsyncExitStack, instead: Ask | None) -> None:
        self._settings = settings
        self._stack = stack
        self._instead = instead
        self._room = asyncio.Semaphore(settings.concurrency)

    async def panel(self) -> list[Judge]:
        """Who is asked for RULER."""
        form = reply_format_of(self._settings.subscores)
        return [
            Judge(member.model, member.weight, await self.by(form, self._settings.as_member(member)))
            for member in self._settings.members
        ]

    async def by(self, reply_format: Mapping[str, Any], judge: JudgeSettings | None = None) -> Ask:
        """How to ask for replies of a form: the judge of the settings, or another."""
        if self._instead is not None:
            return self._instead
        model = JudgeModel(judge or self._settings, reply_format)
        self._stack.push_async_callback(model.close)
        await model.warm_up()
        return _in_turn(model.ask, self._room)


class _Pools:
    """Processes of reward functions, one pool for each set of functions."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._pools: dict[frozenset[str], FunctionPool] = {}

    def of(self, recipe: JudgeSettings) -> FunctionPool | None:
        """The pool of a recipe's functions; None: it has none."""
        functions = frozenset(reward.function for reward in recipe.in_force() if reward.function)
        if functions and functions not in self._pools:
            self._pools[functions] = FunctionPool(recipe)
            self._stack.push_async_callback(self._pools[functions].close)
        return self._pools.get(functions)


async def recipe_in_force(bench: Bench, checks: frozenset[str]) -> str:
    """The hash of the recipe that `bench`, which is one recipe's, scores by now. Raises FunctionsDown.

    `checks`: the functions that a rubric names; its code is of the recipe where that has a rubric.
    """
    by_rubric = bench.rubrics and any(reward.kind == "rubric" for reward in bench.settings.in_force())
    return recipe_hash(
        bench.settings,
        await bench.functions.code() if bench.functions else "",
        await bench.rubrics.code(checks) if bench.rubrics and by_rubric else "",
    )


def _in_turn(ask: Ask, room: asyncio.Semaphore) -> Ask:
    """Asking as far as there is room: a group with rubrics asks once a run, and groups are scored side by side."""

    async def asked(messages: Messages) -> Answer:
        async with room:
            return await ask(messages)

    return asked
