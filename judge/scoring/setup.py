"""Build what scoring needs from the settings: judge models, function processes, and stored replies.

Owns: opening and closing them, rejecting settings without any judge, finding a stored reply for a prompt under the
current recipe, remembering replies that are paid for and not written yet, and a recipe without human feedback. Refuses:
reading replies (`judge.llm.reply_reader`), scoring (`judge.scoring.group_score`), writing (`judge.scoring.worker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from judge.errors import JudgeMisconfigured
from judge.llm import turn_critique
from judge.llm.follow_up import FORM
from judge.llm.judge_model import BaseEndpoints, BaseJudge, JudgeAnswer, JudgeModel, Messages
from judge.llm.panel import PanelJudge, StoredReply
from judge.llm.prompt import GroupPrompt
from judge.llm.prompt import reply_format as reply_format_of
from judge.llm.repair import Ask
from judge.llm.rubric import reply_format
from judge.llm.ruler import GroupRuling
from judge.panel_settings import BASE
from judge.rewards.code_checks import CodeJudges
from judge.rewards.follow_ups import FollowUpJudge
from judge.rewards.functions import FunctionPool
from judge.rewards.judge_context import JudgeContext, ReplyStore, StoredReplies
from judge.rewards.rubrics import RubricJudge, StoredVerdicts
from judge.rewards.turns import TurnJudge
from judge.rewards.verdict_cache import VerdictCache
from judge.scoring.reward_parts import recipe_hash
from judge.settings import DEFAULT, ONE_BY_ONE, JudgeSettings, RewardSettings
from recorder.base.lru import Lru
from recorder.base.rules import value_error
from recorder.llm import litellm_edge
from recorder.queue.judging import scores
from recorder.queue.judging.scores import StoredScore
from recorder.store.database import Project

KEPT: Final = 256  # more than a worker scores at once; some kilobytes each


class CachedReplies(ReplyStore):
    """The stored replies that one judge context can reuse."""

    def __init__(self, project: Project, settings: JudgeSettings, functions: FunctionPool | None) -> None:
        self._project = project
        self._settings = settings
        self._functions = functions
        self._unwritten: Lru[tuple[str, str], StoredReplies] = Lru(KEPT)

    async def known(self, prompt_hash: str, checks: str) -> StoredReplies | None:
        """Those of the newest score in the store, else those of this process."""
        recipe = self._recipe(checks)
        stored = _replies_of(await scores.find_cached_score(self._project, recipe, prompt_hash))
        return stored or self._unwritten.get((recipe, prompt_hash))

    async def keep(self, prompt: GroupPrompt, ruling: GroupRuling, checks: str) -> None:
        """Keep a reply until its score is stored: the write may be refused, or dropped with an expired lease."""
        if ruling.reply is None:
            return
        key = (self._recipe(checks), prompt.hash)
        before = self._unwritten.get(key)
        others = before.replies if before is not None and before.order_seed == prompt.seed else {}
        reply = StoredReply(ruling.reply, ruling.version)
        self._unwritten.put(key, StoredReplies(prompt.seed, {**others, prompt.turn.number: reply}))

    def _recipe(self, checks: str) -> str:
        # Functions run before a judge model is asked, so their code is loaded by now. It is not read again, because
        # nothing here may fail after a reply was paid for.
        return recipe_hash(self._settings, self._functions.loaded if self._functions else "", checks)


def _replies_of(score: StoredScore | None) -> StoredReplies | None:
    """The replies behind a score; None: none is stored."""
    if score is None or score.order_seed is None:
        return None
    found = {one.number: StoredReply(one.reply, one.judge_version) for one in score.replies if one.reply is not None}
    if score.reply is not None:
        found[0] = StoredReply(score.reply, score.judge_version)
    return StoredReplies(score.order_seed, found, whole=True) if found else None


def check_settings(settings: JudgeSettings) -> None:
    """Raise JudgeMisconfigured if there is no judge, or a part of a recipe's reward cannot be computed."""
    if not settings.is_set():
        raise JudgeMisconfigured(
            "no judge is set: set judge.model to a LiteLLM name (HONE_JUDGE__MODEL=openai/…, with its key in "
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


def describe_parts(recipe: JudgeSettings) -> str:
    """The parts of a recipe's reward, for people."""
    return ", ".join(f"{reward.name} x {reward.weight:g}" for reward in recipe.in_force())


def _check_rewards(at: str, recipe: JudgeSettings) -> None:
    for number, reward in enumerate(recipe.in_force()):
        if reward.kind == "ruler" and not recipe.members:  # a rubric's criteria may all be decided by code
            raise JudgeMisconfigured(
                f"{at}.rewards has RULER but no judge model: set judge.model, name a [[judge.panel]], or remove "
                "that reward"
            )
        if reward.kind == "turns" and not recipe.model:
            raise JudgeMisconfigured(
                f"{at}.rewards has a reward of kind turns but no judge model: set judge.model, or remove that reward"
            )
        if reward.rule is not None and (why := value_error(reward.rule, reward.value)):
            raise JudgeMisconfigured(f"{at}.rewards[{number}].value of the rule {reward.rule!r} {why}")


@asynccontextmanager
async def open_judge_context(
    settings: JudgeSettings,
    project: Project,
    *,
    keep: bool = True,
    again: bool = False,
    ask: Ask | None = None,
    bases: BaseEndpoints | None = None,
) -> AsyncIterator[JudgeContext]:
    """The judge context, until the end of the block; with `keep` false scoring itself writes nothing.

    All recipes share one judge model or panel, and each judge one rate limit. Recipes with the same reward functions
    share their processes; others do not, so that code of another recipe cannot prevent judging.

    `again`: ask the judge although a stored reply exists. `ask` replaces the configured judge. `bases`: where to find
    the judge `base`; default: through this store.

    Raises JudgeMisconfigured.
    """
    check_settings(settings)
    async with AsyncExitStack() as stack:
        if bases is None:
            bases = BaseEndpoints(project)
            stack.push_async_callback(bases.close)
        code = CodeJudges(settings)
        stack.push_async_callback(code.close)
        shared = _SharedParts(project, _JudgeModels(settings, ask, bases), code, _FunctionPools(stack), keep)
        if ask is None and _asks_a_model(settings):
            await asyncio.to_thread(litellm_edge.load_litellm)  # it takes seconds: not while a group is claimed
            stack.push_async_callback(litellm_edge.close_litellm)
        cheap, strong = shared.contexts(settings), settings.by_strong()
        made = replace(cheap, strong=shared.contexts(strong)) if strong is not None else cheap
        yield made.afresh() if again else made


def _asks_a_model(settings: JudgeSettings) -> bool:
    kinds = {reward.kind for reward in _all_rewards(settings)}
    return "ruler" in kinds or (bool(kinds & ONE_BY_ONE) and bool(settings.model))


def _all_rewards(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of all recipes."""
    return [reward for name in settings.known_recipes() for reward in settings.by_recipe(name).in_force()]


@dataclass(frozen=True, slots=True)
class _SharedParts:
    """What the contexts of all recipes, aliases and both judges share."""

    project: Project
    asking: _JudgeModels
    code: CodeJudges
    pools: _FunctionPools
    keep: bool

    def contexts(self, settings: JudgeSettings) -> JudgeContext:
        """The context of the default recipe, with those of the others.

        If an alias's base judges, each alias has contexts of its own, made when it is first judged.
        """
        made = self._of_alias(settings, None)
        if not settings.asks_base:
            return made
        of_alias: dict[str | None, JudgeContext] = {None: made}

        def asked_of(alias: str | None) -> JudgeContext:
            if alias not in of_alias:
                of_alias[alias] = self._of_alias(settings, alias)
            return of_alias[alias]

        return replace(made, asked_of=asked_of)

    def _of_alias(self, settings: JudgeSettings, alias: str | None) -> JudgeContext:
        rewards = _all_rewards(settings)
        judges = self.asking.panel(settings, alias) if any(reward.kind == "ruler" for reward in rewards) else []
        rubrics = None
        if any(reward.kind == "rubric" for reward in rewards):
            rubrics = self._rubrics(settings, alias, rewards)
        named = settings.of_alias(alias)
        follow_ups = None
        if any(reward.kind == "follow_up" for reward in rewards):
            follow_ups = self._follow_ups(settings, alias)
        turns = None
        if any(reward.kind == "turns" for reward in rewards) and settings.model:
            ask = self.asking.by(turn_critique.FORM.schema(), settings, alias)
            turns = TurnJudge(named, ask, VerdictCache(named, self.project, keep=self.keep))

        def context_of(name: str) -> JudgeContext:
            recipe = named.by_recipe(name)
            functions = self.pools.of(recipe)
            replies = CachedReplies(self.project, recipe, functions)
            return JudgeContext(recipe, judges, functions, replies, rubrics, name, follow_ups=follow_ups, turns=turns)

        return replace(context_of(DEFAULT), others={name: context_of(name) for name in settings.recipes})

    def _rubrics(self, settings: JudgeSettings, alias: str | None, rewards: Sequence[RewardSettings]) -> RubricJudge:
        quoting = {reward.evidence for reward in rewards if reward.kind == "rubric" and settings.model}
        asks = {evidence: self.asking.by(reply_format(evidence=evidence), settings, alias) for evidence in quoting}
        named = settings.of_alias(alias)
        return RubricJudge(named, asks, self.code, StoredVerdicts(named, self.project, keep=self.keep))

    def _follow_ups(self, settings: JudgeSettings, alias: str | None) -> FollowUpJudge:
        ask = self.asking.by(FORM.schema(), settings, alias) if settings.model else None
        named = settings.of_alias(alias)
        return FollowUpJudge(named, self.project, ask, VerdictCache(named, self.project, keep=self.keep))


class _JudgeModels:
    """Judge models for several reply formats, with at most `judge.concurrency` open requests together.

    `instead` replaces them.
    """

    def __init__(self, settings: JudgeSettings, instead: Ask | None, bases: BaseEndpoints) -> None:
        self._instead = instead
        self._bases = bases
        self._room = asyncio.Semaphore(settings.concurrency)

    def panel(self, settings: JudgeSettings, alias: str | None) -> list[PanelJudge]:
        """The judges for RULER."""
        form = reply_format_of(settings.subscores)
        asked = zip(settings.of_alias(alias).members, settings.members, strict=True)
        return [
            PanelJudge(named.model, named.weight, self.by(form, settings.as_member(member), alias))
            for named, member in asked
        ]

    def by(self, reply_format: Mapping[str, Any], judge: JudgeSettings, alias: str | None) -> Ask:
        """How to ask a judge for replies of a format."""
        if self._instead is not None:
            return self._instead
        if judge.model == BASE:
            return _with_limit(BaseJudge(self._bases, alias, judge, reply_format).ask, self._room)
        return _with_limit(JudgeModel(judge, reply_format).ask, self._room)


class _FunctionPools:
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


async def current_recipe(context: JudgeContext, checks: frozenset[str]) -> str:
    """The hash of the recipe that `context` (of one recipe) scores by now. Raises FunctionsDown.

    `checks`: the functions that a rubric names; their code is part of a recipe with a rubric.
    """
    by_rubric = context.rubrics and any(reward.kind == "rubric" for reward in context.settings.in_force())
    return recipe_hash(
        context.settings,
        await context.functions.code() if context.functions else "",
        await context.rubrics.code(checks) if context.rubrics and by_rubric else "",
    )


def _with_limit(ask: Ask, room: asyncio.Semaphore) -> Ask:
    """Ask when there is room: rubrics make one request a trajectory, and groups are scored concurrently."""

    async def asked(messages: Messages) -> JudgeAnswer:
        async with room:
            return await ask(messages)

    return asked


def without_people(settings: JudgeSettings, name: str) -> JudgeSettings:
    """The settings of one recipe, as if it were the only one, without human feedback.

    Raises:
        JudgeMisconfigured: there is no recipe of that name, or it consists of human feedback only.
    """
    if name not in settings.known_recipes():
        known = ", ".join(settings.known_recipes())
        raise JudgeMisconfigured(f"there is no judge recipe {name!r:.80}: known are {known}")
    recipe = settings.by_recipe(name)
    rewards = [reward for reward in recipe.in_force() if reward.kind != "feedback"]
    if not rewards:
        raise JudgeMisconfigured(
            f"the judge recipe {name!r} has no part that can be tested: set judge.model, or name functions, rules or a "
            "rubric in its rewards (feedback comes from people)"
        )
    return recipe.model_copy(update={"rewards": rewards, "recipes": {}, "strong": None}).without_comments()
