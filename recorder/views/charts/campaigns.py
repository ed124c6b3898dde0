"""The chart of campaigns: what each measured after its steps, one over the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from recorder.stats.charts import Axis, Chart, Series
from recorder.store.database import Project
from recorder.views.campaigns.progress import CampaignProgress, list_campaigns_progress
from recorder.views.lists.short_ids import cut_id

_WAITS_FOR: Final = "The first step or validation that measures the campaign gives the first point."


async def load_campaign_charts(project: Project, ids: Sequence[str], alias: str | None = None) -> dict[str, Chart]:
    """Return the chart `campaigns` of the newest campaigns with these ids; without ids, of the newest one."""
    return {"campaigns": campaign_chart(choose_campaigns(await list_campaigns_progress(project, alias), ids))}


def choose_campaigns(newest: Sequence[CampaignProgress], ids: Sequence[str]) -> list[CampaignProgress]:
    """Return the campaigns with these ids, in their order; without any that is there, the newest."""
    by_id = {one.id: one for one in newest}
    found = [by_id[id_] for id_ in dict.fromkeys(ids) if id_ in by_id]
    return found or list(newest[:1])


def campaign_chart(campaigns: Sequence[CampaignProgress]) -> Chart:
    """The measures of campaigns with their 95 % intervals, after each step, a series for each campaign."""
    at = sorted({seen.step for one in campaigns for seen in one.measured})
    kinds = list(dict.fromkeys(seen.measure.kind for one in campaigns for seen in one.measured))
    names = Counter(one.name for one in campaigns)
    return Chart(
        " and ".join(kinds or ["measure"]).capitalize() + " after each step",
        tuple(str(step) for step in at),
        tuple(_series(one, at, _name(one, names)) for one in campaigns),
        share=bool(kinds) and "reward" not in kinds,
        axis=Axis("after step", "numbers", tuple(float(step) for step in at)),
        waits_for=_WAITS_FOR,
    )


def _name(one: CampaignProgress, names: Counter[str]) -> str:
    """A campaign's name, with its id where another one has the same name."""
    if names[one.name] == 1:
        return one.name
    short = cut_id(one.id)
    return f"{one.name} ({short.head}…{short.tail})" if short.hidden else f"{one.name} ({one.id})"


def _series(one: CampaignProgress, at: Sequence[int], name: str) -> Series:
    measured = {seen.step: seen.measure for seen in one.measured}
    row = [measured.get(step) for step in at]
    ends = [measure.interval if measure is not None else None for measure in row]
    return Series(
        name,
        tuple(measure.value if measure is not None else None for measure in row),
        tuple(end.low if end is not None else None for end in ends),
        tuple(end.high if end is not None else None for end in ends),
    )
