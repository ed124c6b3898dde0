"""What a campaign drew, and what came of it, from its written draws and the rewards of its groups.

Owns: these sums. Refuses: drawing (`trainer.campaign.draw`), and presentation (`terminal`, `page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from recorder.queue import campaigns, draws
from recorder.queue.campaigns import CampaignView
from recorder.queue.draws import Draw, DrawReason, GroupOutcome
from recorder.report.shapes import CampaignDraws, DrawnGroups, DrawnScenario
from recorder.store.database import Store
from trainer.campaign_settings import CampaignSettings


async def load_draws(store: Store, campaign: CampaignView) -> CampaignDraws | None:
    """What a campaign drew; None if it wrote no draw down."""
    drawn = await draws.list_draws(store, campaign.id)
    if not drawn:
        return None
    names = {one.id: one.external_id for one in await campaigns.list_scenarios(store, campaign.id, "train")}
    settings = CampaignSettings.model_validate(campaign.settings)
    outcomes = await draws.list_outcomes(store, campaign.id)
    newest = {one.scenario_id: one for one in drawn}
    times, refills = Counter(one.scenario_id for one in drawn), Counter(one.scenario_id for one in drawn if one.refill)
    equal = Counter(one.scenario_id for one in outcomes if one.equal)
    listed = [
        DrawnScenario(names[id_], one.reward, one.differ, times[id_], equal[id_], refills[id_])
        for id_, one in newest.items()
    ]
    reasons = [reason for reason in DrawReason if any(one.reason is reason for one in drawn)]
    return CampaignDraws(
        choose=settings.choose,
        explore_share=settings.explore_share,
        refill=settings.refill,
        begun=sum_groups("", [one for one in drawn if not one.refill], outcomes),
        all=sum_groups("", drawn, outcomes),
        by_reason=[sum_groups(why, [one for one in drawn if one.reason is why], outcomes) for why in reasons],
        scenarios=sorted(listed, key=lambda one: (-one.drawn, -one.equal, one.scenario)),
    )


def sum_groups(reason: str, drawn: Sequence[Draw], outcomes: Sequence[GroupOutcome]) -> DrawnGroups:
    """The sums over those of the drawn groups that have at least two rewards."""
    of = {(one.step, one.scenario_id): one for one in outcomes if one.comparable}
    found = [(one, of[key]) for one in drawn if (key := (one.step_number, one.scenario_id)) in of]
    equal = [outcome for _, outcome in found if outcome.equal]
    return DrawnGroups(
        reason,
        groups=len(found),
        equal=len(equal),
        attempts=sum(len(outcome.rewards) for _, outcome in found),
        wasted=sum(len(outcome.rewards) for outcome in equal),
        expected=fmean(one.differ for one, _ in found) if found else None,
    )
