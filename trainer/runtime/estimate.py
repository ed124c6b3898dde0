"""`hone train --estimate`: estimate a campaign before anything is started.

Owns: reading what earlier trajectories used, and the price of the judge's tokens from LiteLLM's table. Refuses:
counting (`trainer.campaign.estimate`), and starting, writing or requesting anything: the store is only read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

from judge.settings import ONE_BY_ONE, JudgeSettings, RewardSettings
from proxy.settings.hone import HoneSettings
from recorder.errors import StoreError
from recorder.llm import litellm_edge
from recorder.queue.training import cost_estimates
from recorder.queue.training.cost_estimates import TrajectoryCost
from recorder.registry.aliases import get_aliases
from recorder.store.bootstrap import has_store, open_to_look
from recorder.store.database import Project, Store
from trainer.campaign import estimate
from trainer.campaign.estimate import CampaignCounts, CampaignEstimate, StrongJudgeEstimate, TokenEstimate
from trainer.campaign.record import CampaignPlan
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError
from trainer.runtime.service_price import explain_counted_price
from trainer.tasks.scenarios import ignored_columns

ASKING: Final = ONE_BY_ONE | {"ruler"}  # the kinds that ask a judge model
BASE: Final = "@0"  # the end of the name of an alias's base


async def estimate_campaign(plan: CampaignPlan, settings: HoneSettings) -> CampaignEstimate:
    """The estimate of a planned campaign. Raises `CampaignError` if the alias is ambiguous."""
    alias = _alias(plan.settings.alias, list(settings.declared_aliases()))
    name = settings.judge.recipe_of(alias, plan.settings.judge_recipe)
    recipe = settings.judge.of_alias(alias).by_recipe(name)
    counts = estimate.count_campaign(plan, _asked(recipe), recipe.requests)
    strong = _strong(plan, settings, alias, name)
    lately = await _lately(settings, alias, name, recipe, strong)
    agent = estimate.agent_tokens(counts, plan.settings, lately.runs, alias)
    judge = estimate.judge_tokens(counts, recipe, agent, lately.judged, alias)
    usd = await _usd(counts, recipe, judge, lately.judged)
    beside = None
    if strong is not None:
        tokens = estimate.judge_tokens(strong.counts, strong.recipe, agent, lately.by_strong, alias)
        price = await _usd(strong.counts, strong.recipe, tokens, lately.by_strong)
        of = strong.counts
        model = strong.recipe.model
        beside = StrongJudgeEstimate(model, strong.every, of.ruler, of.rubric, tokens, price, of.follow_up, of.turns)
    service = explain_counted_price(settings, counts, agent)
    notes = [*lately.unread, *([service] if service else []), *_notes(plan, recipe, counts, beside)]
    return CampaignEstimate(plan.name, name, plan.settings.steps, counts, agent, judge, usd, beside, notes)


@dataclass(frozen=True, slots=True)
class _StrongJudgePlan:
    """The strong judge: its settings under the campaign's recipe, and its requests."""

    recipe: JudgeSettings
    every: int
    counts: CampaignCounts


def _strong(plan: CampaignPlan, settings: HoneSettings, alias: str, name: str) -> _StrongJudgePlan | None:
    """The strong judge of a campaign; None: there is none, or it is not asked."""
    alone, set_ = settings.judge.by_strong(), settings.judge.strong
    if alone is None or set_ is None:
        return None
    recipe = alone.of_alias(alias).by_recipe(name)
    whole = estimate.count_campaign(plan, _asked(recipe), recipe.requests, moving=True)
    counts = estimate.scale_counts(whole, set_.every)
    return _StrongJudgePlan(recipe, set_.every, counts) if counts.requests else None


def _asked(recipe: JudgeSettings) -> list[RewardSettings]:
    """The rewards of a recipe, without follow-ups that rules alone decide: no judge model is set."""
    return [reward for reward in recipe.in_force() if reward.kind != "follow_up" or recipe.model]


def _alias(named: str | None, declared: list[str]) -> str:
    if named is not None and declared and named not in declared:
        raise CampaignError(f"there is no alias {named!r} (campaign.alias); there is: {', '.join(declared)}")
    if named is None and len(declared) > 1:
        raise CampaignError(f"there are several aliases ({', '.join(declared)}): name the one to train with --alias")
    return named or next(iter(declared), "the model")


@dataclass(frozen=True, slots=True)
class _RecentUsage:
    """The stored usage of recent trajectories of an alias and of judging them. `unread`: why it was not read."""

    runs: TrajectoryCost | None = None
    judged: TrajectoryCost | None = None
    by_strong: TrajectoryCost | None = None
    unread: Sequence[str] = ()


async def _lately(
    settings: HoneSettings, alias: str, name: str, recipe: JudgeSettings, strong: _StrongJudgePlan | None
) -> _RecentUsage:
    if not await asyncio.to_thread(has_store, settings.data, settings.recorder):
        return _RecentUsage(unread=["there is no store yet, so the usage of earlier trajectories is unknown"])
    parts = [reward.name for reward in recipe.in_force() if reward.kind in ASKING]
    try:
        async with _looking(settings) as store:
            found = {one.name: one.id for one in await get_aliases(Project(store, settings.project))}
            if alias not in found:
                return _RecentUsage()
            judged = (
                await cost_estimates.judging_costs(store, found[alias], estimate.recipe_judges(recipe), parts)
                if parts
                else None
            )
            by_strong = None
            if strong is not None:
                by_strong = await cost_estimates.strong_judge_costs(
                    Project(store, settings.project), alias, name, strong.recipe.model
                )
            return _RecentUsage(await cost_estimates.trajectory_costs(store, found[alias]), judged, by_strong)
    except StoreError as e:
        return _RecentUsage(unread=[f"the usage of earlier trajectories is unknown: {str(e).rstrip('.')}"])


@asynccontextmanager
async def _looking(settings: HoneSettings) -> AsyncIterator[Store]:
    store = await open_to_look(settings.data, settings.recorder)
    try:
        yield store
    finally:
        await store.close()


async def _usd(
    counts: CampaignCounts, recipe: JudgeSettings, tokens: TokenEstimate, judged: TrajectoryCost | None
) -> float | None:
    if not counts.requests:
        return 0.0
    if judged is not None and judged.usd is not None:  # it includes the provider's discount for cached tokens
        return counts.judged * judged.usd
    if tokens.sent is None or tokens.answered is None:
        return None
    prices = [
        await asyncio.to_thread(_price, model, math.ceil(share * tokens.sent), math.ceil(share * tokens.answered))
        for model, share in _shares(counts, recipe)
    ]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _price(model: str, sent: int, answered: int) -> float | None:
    """The price of these tokens; an alias's base runs on the local engine and is free."""
    return 0.0 if model.endswith(BASE) else litellm_edge.token_price(model, sent, answered)


def _shares(counts: CampaignCounts, recipe: JudgeSettings) -> list[tuple[str, float]]:
    """The share of all requests that goes to each model."""
    whole, members = counts.requests, recipe.members
    alone = counts.rubric + counts.follow_up + counts.turns
    asked = [(member.model, counts.ruler / whole / len(members)) for member in members if counts.ruler]
    return [*asked, (recipe.model, alone / whole)] if alone else asked


def _notes(
    plan: CampaignPlan, recipe: JudgeSettings, counts: CampaignCounts, strong: StrongJudgeEstimate | None
) -> list[str]:
    rewards, settings = recipe.in_force(), plan.settings
    notes = [str(column) for column in ignored_columns(chain(*plan.parts.values()))]
    if not rewards:
        notes.append("no judge is set: set judge.model, or name rewards in [[judge.rewards]]")
    elif not estimate.recipe_judges(recipe) and counts.requests:
        notes.append("a reward needs a judge model, and judge.model is not set")
    notes += _follow_up_notes(settings, recipe, rewards, counts)
    if strong is not None:
        notes.append(
            f"if the two judges disagree too much, judge.strong ({strong.model}) scores every group until they agree "
            f"again, and the other judge one of {strong.every}"
        )
    if settings.target is not None or settings.plateau_steps is not None:
        notes.append("campaign.target or campaign.plateau_steps may end the campaign earlier")
    return [*notes, "repeated attempts, and retried or repaired requests, are not counted"]


def _follow_up_notes(
    settings: CampaignSettings, recipe: JudgeSettings, rewards: Sequence[RewardSettings], counts: CampaignCounts
) -> list[str]:
    if not any(reward.kind == "follow_up" for reward in rewards):
        return []
    notes = []
    if counts.follow_up:
        notes.append("rewards of kind follow_up ask at most once an attempt: rules decide thanks, repeats and errors")
    wait_s, timeout_s = recipe.follow_up_wait_s, settings.judge_timeout_s
    if wait_s >= timeout_s:
        notes.append(
            f"a group waits up to {wait_s:g} s for what comes next (judge.follow_up_wait_s), and a step waits "
            f"{timeout_s:g} s for its scores (campaign.judge_timeout_s): lower the first"
        )
    return notes
