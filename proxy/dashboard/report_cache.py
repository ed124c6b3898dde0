"""The reports that a page, its charts and its file share for some seconds: loading one takes most of a page's time.

Refuses: loading (`recorder.report.contents`). A campaign's steps take longer than a report is kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from recorder.base.lru import Lru
from recorder.report.contents import find_campaign, gather_report
from recorder.report.shapes import CampaignReport
from recorder.store.database import Project

KEPT: Final = 8  # reports, of up to half a megabyte
PAGE_S: Final = 5.0  # an older report is loaded again for a page and a file
CHART_S: Final = 60.0  # and for a chart, which is requested right after its page


@dataclass(frozen=True, slots=True)
class _KeptReport:
    report: CampaignReport
    at: float  # by the loop's clock


class ReportCache:
    """The newest reports. One a process."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._kept: Lru[str, _KeptReport] = Lru(KEPT)

    async def load(self, campaign: str, within_s: float) -> CampaignReport:
        """The report of a campaign by its id or name, at most `within_s` old. Raises NotFound, StoreError."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(campaign)
        if kept is None or now - kept.at > within_s:
            found = await find_campaign(self._project, campaign)
            kept = _KeptReport(await gather_report(self._project.store, found), now)
            self._kept.put(campaign, kept)
            self._kept.put(found.id, kept)
        return kept.report
