"""Write a campaign's events to the ledger, and summarise the campaign at its end.

Refuses: the classes of events and reading them back (`recorder.views.campaigns`), and decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from recorder.queue.campaigns import CampaignView
from recorder.store import ledger
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.views.campaigns.events import CampaignEnded, CampaignEvent, StepDone, Validation, encode_event
from recorder.views.campaigns.history import CampaignHistory
from recorder.views.campaigns.measures import count_measured
from trainer.campaign.stop_rules import StopDecision

_UNMEASURED: Final[tuple[tuple[float | None, int], tuple[float | None, int]]] = ((None, 0), (None, 0))


async def write_event(store: Store, campaign: CampaignView, code: str, event: CampaignEvent) -> None:
    """Write an event of a campaign to the ledger."""
    row = LedgerRow(campaign.project_id, "campaign", campaign.id, code, encode_event(event))
    async with store.write() as conn:
        await ledger.write_rows(conn, [row])


def summarize_campaign(
    name: str, stop: StopDecision, history: CampaignHistory, live: str, seconds: float
) -> CampaignEnded:
    """The summary of a whole campaign."""
    seen: Sequence[StepDone | Validation] = history.validations or history.steps
    measured = [(one.success, count_measured(one)) for one in seen if one.success is not None]
    (before, attempts_before), (after, attempts_after) = (measured[0], measured[-1]) if measured else _UNMEASURED
    left_out: Counter[str] = Counter()
    for step in history.steps:
        left_out.update(step.left_out)
    return CampaignEnded(
        campaign=name,
        reason=stop.code,
        detail=stop.detail,
        steps=history.steps_done,
        version=live,
        seconds=seconds,
        success_before=before,
        success_after=after,
        attempts_before=attempts_before,
        attempts_after=attempts_after,
        versions=success_by_version(history.steps),
        trained=sum(step.trained for step in history.steps),
        left_out=dict(left_out),
    )


def success_by_version(done: Sequence[StepDone]) -> dict[str, float | None]:
    """The share of successes among the attempts that each version sampled, in the order of the steps."""
    by_version: dict[str, list[float]] = {}
    for step in done:
        by_version.setdefault(step.sampled_by, []).extend([] if step.success is None else [step.success])
    return {name: sum(shares) / len(shares) if shares else None for name, shares in by_version.items()}
