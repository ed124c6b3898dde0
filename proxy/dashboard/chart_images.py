"""The charts of the pages Versions and Training, and the handler that serves them as images.

The charts are built from the same views as their pages. Refuses: drawing (`proxy.dashboard.chart_drawer`,
`recorder.stats.charts`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from proxy.api.actions import get_alias
from proxy.dashboard.chart_drawer import ChartFailed
from proxy.dashboard.renderer import ForPages, PageContext, page_headers
from proxy.errors import UnknownObject
from recorder.stats.charts import Chart, Series
from recorder.stats.means import Interval
from recorder.views.status.training import STEPS
from recorder.views.versions.ancestry import AncestryVersion, list_ancestry
from recorder.views.versions.steps import OutcomeCounts, StepSummary, list_steps, training_outcomes

VERSIONS: Final = 25  # of an alias, on one page: each has a reward of up to 2,000 trajectories
REASONS: Final = 5  # of exclusion that get a series of their own
TRAINED: Final = "trained"
HELD_OUT_REWARD: Final = "held-out reward"
# Served instead of a chart that could not be drawn, with the size of a chart.
_NO_PICTURE: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 648 202" font-family="sans-serif" font-size="16">'
    '<text x="12" y="40" fill="{ink}">The chart could not be drawn. The table below has its values.</text></svg>'
)
_INK: Final = {False: "#57606a", True: "#a3abb3"}


def ancestry_chart(lines: Sequence[AncestryVersion]) -> Chart:
    """The held-out measures and the rewards of versions, oldest first. Relative rewards compare no versions."""
    drawn = [one for one in reversed(lines) if _points(one)]
    kinds = [
        kind
        for kind in ("success", "win rate", HELD_OUT_REWARD, "reward")
        if any(kind in _points(one) for one in drawn)
    ]
    series = tuple(_series(kind, [_points(one).get(kind) for one in drawn]) for kind in kinds)
    title = " and ".join(kinds).capitalize() + " of each version"
    shares = not {"reward", HELD_OUT_REWARD} & set(kinds)
    return Chart(title, tuple(f"@{one.number}" for one in drawn), series, share=shares)


def _points(one: AncestryVersion) -> dict[str, tuple[float, Interval | None]]:
    """What is drawn of a version, by the name of its series: values with their intervals."""
    points: dict[str, tuple[float, Interval | None]] = {}
    if one.measure is not None:
        kind = HELD_OUT_REWARD if one.measure.kind == "reward" else one.measure.kind
        points[kind] = one.measure.value, one.measure.interval
    if one.reward is not None and not one.reward.relative:
        points["reward"] = one.reward.mean, one.reward.interval
    return points


def _series(kind: str, points: Sequence[tuple[float, Interval | None] | None]) -> Series:
    ends = [point[1] if point is not None else None for point in points]
    return Series(
        kind,
        tuple(point[0] if point is not None else None for point in points),
        tuple(end.low if end is not None else None for end in ends),
        tuple(end.high if end is not None else None for end in ends),
    )


_OF_STEPS: Final[Mapping[str, tuple[str, Callable[[StepSummary], float | None]]]] = {
    "reward": ("Mean reward", lambda step: step.reward_mean),
    "kl": ("KL, engine to trainer", lambda step: step.kl),
    "entropy": ("Entropy", lambda step: step.entropy),
    "clipped": ("Share of clipped tokens", lambda step: step.clip_fraction),
    "speed": ("Tokens a second", lambda step: step.tokens_per_s),
}


_DRIFT: Final = (
    ("kl_base", "from the base"),
    ("kl_parent", "from the parent"),
    ("kl_day", "from the version of a day ago"),
    ("kl_week", "from the version of a week ago"),
)


def step_charts(steps: Sequence[StepSummary]) -> dict[str, Chart]:
    """A chart of each metric, and one of the seconds by phase, by name; oldest step first."""
    oldest_first = list(reversed(steps))
    places = tuple(str(step.number) for step in oldest_first)
    drawn = {
        name: Chart(title, places, (Series(title, tuple(value(step) for step in oldest_first)),))
        for name, (title, value) in _OF_STEPS.items()
    }
    drawn["drift"] = Chart(
        "Drift: KL on the drift set, in nats",
        places,
        tuple(
            Series(title, tuple(step.drift.get(name) for step in oldest_first))
            for name, title in _DRIFT
            if any(name in step.drift for step in oldest_first)
        ),
    )
    scored = tuple(step.drift.get("score") for step in oldest_first)
    drawn["forgetting"] = Chart("Forgetting: mean score on the drift set", places, (Series("score", scored),))
    phases = list(dict.fromkeys(phase for step in oldest_first for phase in step.seconds))
    spent = tuple(Series(phase, tuple(step.seconds.get(phase) for step in oldest_first)) for phase in phases)
    return drawn | {"seconds": Chart("Seconds by phase", places, spent, bars=True)}


def outcome_chart(intervals: Sequence[OutcomeCounts]) -> Chart:
    """Trained and excluded trajectories over time, by reason."""
    total: Counter[str] = Counter()
    for one in intervals:
        total.update(one.trajectories)
    reasons = [code for code, _ in total.most_common() if code != TRAINED]
    first, others = reasons[:REASONS], reasons[REASONS:]
    series = [
        Series(code, tuple(float(one.trajectories.get(code, 0)) for one in intervals)) for code in (TRAINED, *first)
    ]
    if others:
        rest = tuple(float(sum(one.trajectories.get(code, 0) for code in others)) for one in intervals)
        series.append(Series("other reasons", rest))
    return Chart("Trained and excluded trajectories", tuple(_when(one) for one in intervals), tuple(series), bars=True)


def _when(one: OutcomeCounts) -> str:
    """The start of an interval: a date for days, else with hours and minutes."""
    return time.strftime("%b %d" if one.span_s >= 86400 else "%b %d %H:%M", time.localtime(one.since))


@get("/charts/{name:str}", include_in_schema=False)
async def chart_image(
    context: ForPages,
    name: FromPath[str],
    alias: FromQuery[str | None] = None,
    before: FromQuery[int | None] = None,
    dark: FromQuery[bool] = False,
) -> Response[bytes]:
    """A chart as SVG. Raises UnknownObject."""
    return await draw_image(context, await _chart(context, name.removesuffix(".svg"), alias, before), dark=dark)


async def draw_image(context: PageContext, chart: Chart, *, dark: bool) -> Response[bytes]:
    """Return a chart as SVG; 503 with a replacement image if it cannot be drawn in time."""
    try:
        drawn, status = await context.drawer.svg(chart, dark=dark), 200
    except ChartFailed:
        drawn, status = _NO_PICTURE.format(ink=_INK[dark]).encode(), 503
    return Response(drawn, status_code=status, headers=page_headers(), media_type="image/svg+xml")


async def _chart(context: ForPages, name: str, alias: str | None, before: int | None) -> Chart:
    if name == "versions":
        one = await get_alias(context.project, alias)
        return ancestry_chart(await list_ancestry(context.project.store, one, before=before, limit=VERSIONS))
    if name == "outcomes":
        return outcome_chart(await training_outcomes(context.project))
    charts = step_charts(await list_steps(context.project, alias=alias, limit=STEPS))
    if name not in charts:
        raise UnknownObject(f"there is no chart {name[:100]!r}: use versions, outcomes, {', '.join(charts)}.")
    return charts[name]
