"""What a chart is: series of values over labelled places.

Owns: its shape, and its shape as JSON on the way to the process that draws. Refuses: how it looks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

LENGTH_BYTES: Final = 4  # before a picture on its way back


@dataclass(frozen=True, slots=True)
class Series:
    """Values over a chart's places, and, where they are known, the ends of their intervals. None: there is none."""

    name: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: series over `places` (their labels), as lines or as stacked bars."""

    title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    bars: bool = False
    share: bool = False  # the values are shares: from 0 to 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value is not None for one in self.series for value in one.values)


def as_json(chart: Chart) -> str:
    """A chart on one line."""
    return json.dumps(asdict(chart))


def from_json(line: str | bytes) -> Chart:
    """The chart that `as_json` wrote."""
    told = json.loads(line)
    series = tuple(
        Series(one["name"], tuple(one["values"]), tuple(one["low"]), tuple(one["high"])) for one in told["series"]
    )
    return Chart(told["title"], tuple(told["places"]), series, told["bars"], told["share"])
