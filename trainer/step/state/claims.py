"""Ending the claims of groups that a step is not made of: given back, or excluded.

Refuses: the groups of a step that failed (`trainer.step.runner`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recorder.errors import LeaseLost, StoreUnavailable
from recorder.queue.claims import GroupClaim, return_claim
from recorder.queue.judging import scores
from recorder.queue.training import follow_up_share
from recorder.queue.training.follow_up_share import StepGroup
from recorder.store.database import Store
from trainer.objectives.group_rows import GroupRows
from trainer.step.lease_renewer import LeaseRenewer


async def give_back_claims(store: Store, claims: Sequence[GroupClaim]) -> None:
    """Give back the groups that are still claimed; if the store is unavailable, the leases expire."""
    for claim in claims:
        with suppress(LeaseLost, StoreUnavailable):
            await return_claim(store, claim)


async def exclude_untrainable(
    store: Store, keeper: LeaseRenewer, groups: Sequence[GroupRows], claims: Sequence[GroupClaim]
) -> list[GroupRows]:
    """Exclude the groups that have a reason not to be trained on. Return the others."""
    by_id = {claim.group_id: claim for claim in claims}
    for group in groups:
        if group.code is not None:
            claim = by_id[group.group_id]
            keeper.drop(claim)
            await scores.exclude_group(store, claim, group.code)
    return [group for group in groups if group.code is None]


@dataclass(frozen=True, slots=True)
class LimitedStep:
    """The groups of a step within `trainer.follow_up_share`, and the ids of those that wait for a later one."""

    groups: Sequence[GroupRows]
    waiting: Collection[str] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


async def limit_follow_ups(
    store: Store,
    keeper: LeaseRenewer,
    groups: Sequence[GroupRows],
    claims: Sequence[GroupClaim],
    of_follow_ups: Collection[str],
    share: float,
) -> LimitedStep:
    """Give back the groups whose trained trajectories exceed the share. `of_follow_ups`: groups rewarded by follow-ups.

    Groups were chosen by their rewards before they were claimed; which trajectories are trained on is known only now.
    """
    if share >= 1 or not of_follow_ups:
        return LimitedStep(groups)
    runs = {id_ for group in groups if group.group_id in of_follow_ups for id_ in group.trained}
    families = await follow_up_share.load_key_families(store, runs)
    counted = [
        StepGroup(one.group_id, len(one.trained), Counter(families[id_] for id_ in one.trained if id_ in families))
        for one in groups
    ]
    waiting = set(follow_up_share.find_waiting(counted, share, len(counted)))
    for claim in claims:
        if claim.group_id in waiting:
            keeper.drop(claim)
            await return_claim(store, claim)
            await follow_up_share.write_waiting(store, claim.project_id, [claim.group_id], share)
    metrics = {
        "follow_up_share": follow_up_share.largest_share([one for one in counted if one.id not in waiting]),
        "follow_ups_waiting": float(sum(one.trajectories for one in counted if one.id in waiting)),
    }
    return LimitedStep([one for one in groups if one.group_id not in waiting], waiting, metrics)
