"""Ending the claims of groups that a step is not made of: given back, or excluded.

Refuses: the groups of a step that failed (`trainer.step.runner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from recorder.errors import LeaseLost, StoreUnavailable
from recorder.queue.claims import GroupClaim, return_claim
from recorder.queue.judging import scores
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
