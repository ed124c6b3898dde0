"""What a campaign or a step costs at a training service, in tokens: said before anything is sampled.

Owns: the tokens that a trajectory is expected to have. Refuses: the rule that turns them into the service's tokens
(`trainer.step.tinker.price`), and money. Without `trainer.backend = "tinker"` there is no price.
"""

from __future__ import annotations

import asyncio
import math

from proxy.settings.hone import HoneSettings
from recorder.errors import StoreError
from recorder.queue.training import cost_estimates
from recorder.queue.training.cost_estimates import TrajectoryCost
from recorder.registry.aliases import get_aliases
from recorder.store.bootstrap import has_store, open_to_look
from recorder.store.database import Project
from trainer.campaign import estimate
from trainer.campaign.estimate import CampaignCounts, TokenEstimate
from trainer.campaign.record import CampaignPlan
from trainer.step.tinker.price import explain_price, step_tokens


def explain_plan_price(settings: HoneSettings, row_tokens: int | None) -> str | None:
    """The most that a step of the campaign settings costs, in one sentence. `row_tokens`: the longest trajectory."""
    if settings.trainer.backend != "tinker":
        return None
    campaign = settings.campaign
    groups = campaign.scenarios_per_step + math.ceil(campaign.scenarios_per_step * campaign.refill)
    trajectories = groups * campaign.group_size
    return explain_price(trajectories, row_tokens or settings.trainer.token_budget)


def explain_counted_price(settings: HoneSettings, counts: CampaignCounts, agent: TokenEstimate) -> str | None:
    """The most that a campaign costs, in one sentence, from what its attempts are expected to send and sample."""
    if settings.trainer.backend != "tinker":
        return None
    if agent.sent is None or agent.answered is None or not counts.attempts:
        return f"{explain_price().removesuffix('.')}, and how long trajectories become is unknown"
    most = step_tokens(counts.training, (agent.sent + agent.answered) / counts.attempts)
    return (
        f"the training service computes at most {most:,} tokens for this campaign, {agent.basis}: each row twice, and "
        "prefixes that rows share each time"
    )


async def explain_campaign_price(plan: CampaignPlan, settings: HoneSettings) -> str | None:
    """The same, read from the store, for a campaign that begins."""
    if settings.trainer.backend != "tinker":
        return None
    counts = estimate.count_campaign(plan, ())
    alias = plan.settings.alias or next(iter(settings.declared_aliases()), "the model")
    recent = await _recent_costs(settings, alias)
    return explain_counted_price(settings, counts, estimate.agent_tokens(counts, plan.settings, recent, alias))


async def _recent_costs(settings: HoneSettings, alias: str) -> TrajectoryCost | None:
    """What an alias's newest trajectories used; None: there are none, or the store cannot be read now."""
    if not await asyncio.to_thread(has_store, settings.data, settings.recorder):
        return None
    try:
        store = await open_to_look(settings.data, settings.recorder)
    except StoreError:
        return None
    try:
        found = {one.name: one.id for one in await get_aliases(Project(store, settings.project))}
        return await cost_estimates.trajectory_costs(store, found[alias]) if alias in found else None
    except StoreError:
        return None
    finally:
        await store.close()
