"""The report that a campaign leaves behind when it ends.

Owns: when it is made, where it lies, and that a report that cannot be made never takes the place of how the campaign
ended. Refuses: what it says (`trainer.report`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from recorder.errors import RecorderError
from recorder.store.database import Store
from recorder.work import campaigns
from recorder.work.campaigns import CampaignView
from trainer.errors import TrainerError
from trainer.progress import Progress, Said
from trainer.report import page, text
from trainer.report.gathering import gather

PAGE = "report.html"  # beside the campaign's events


@asynccontextmanager
async def failure_reported(store: Store, campaign: CampaignView, data: Path, progress: Progress) -> AsyncIterator[None]:
    """Leave the report of a campaign that fails within, once it has come to anything. An interruption is no failure."""
    try:
        yield
    except (TrainerError, RecorderError):
        await leave_report(store, await campaigns.get(store, campaign.id), data, progress)
        raise


async def leave_report(store: Store, campaign: CampaignView, data: Path, progress: Progress) -> None:
    """Write the page of a campaign as it ends, and tell it in short; of one that did nothing there is none."""
    path = data / "campaigns" / campaign.name / PAGE
    try:
        report = await gather(store, campaign)
        if not report.steps and not report.validations:
            return
        await asyncio.to_thread(page.write, report, path)
    except (OSError, RecorderError) as e:
        told = f"no report was written to {path}: {e}. `hone report {campaign.name}` shows one"
        progress.tell(Said(told, warning=True))
        return
    progress.tell(Said(f"{text.summary(report)}\nreport: {path}"))
