"""The chart of an alias's versions: held-out measures and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from recorder.registry.aliases import AliasView
from recorder.stats.charts import Axis, Chart, Series
from recorder.stats.means import Interval
from recorder.store.database import Store
from recorder.views.versions.ancestry import AncestryVersion, list_ancestry

VERSIONS: Final = 25  # of an alias, in one chart: each has a reward of up to 2,000 trajectories
HELD_OUT_REWARD: Final = "held-out reward"
_KINDS: Final = ("success", "win rate", HELD_OUT_REWARD, "reward")
_WAITS_FOR: Final = (
    "A version gets a point when a gate or a campaign measures it on held-out scenarios, or when its trajectories get "
    "rewards that are not relative to their groups."
)


async def load_ancestry_charts(store: Store, alias: AliasView, before: int | None = None) -> dict[str, Chart]:
    """Return the chart `versions` of the newest versions with numbers below `before`."""
    return {"versions": ancestry_chart(await list_ancestry(store, alias, before=before, limit=VERSIONS))}


def ancestry_chart(lines: Sequence[AncestryVersion]) -> Chart:
    """The held-out measures and the rewards of versions, oldest first. Relative rewards compare no versions."""
    drawn = [one for one in reversed(lines) if _points(one)]
    kinds = [kind for kind in _KINDS if any(kind in _points(one) for one in drawn)]
    series = tuple(_series(kind, [_points(one).get(kind) for one in drawn]) for kind in kinds)
    title = " and ".join(kinds or ["success"]).capitalize() + " of each version"
    shares = not {"reward", HELD_OUT_REWARD} & set(kinds)
    axis = Axis("version", "numbers", tuple(float(one.number) for one in drawn))
    places = tuple(f"@{one.number}" for one in drawn)
    return Chart(title, places, series, share=shares, axis=axis, waits_for=_WAITS_FOR)


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
