"""The timeline of a trajectory: when models and tools worked, as bars on one axis with shortened pauses.

Owns: the bars, their lanes and rows, and the axis. Pure. Refuses: drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.states import CallKind
from recorder.views.trajectories.shapes import CallView, ToolCallView, TrajectoryView

MODEL: Final = "model"
TOOL: Final = "tool"
SUB_AGENT: Final = "sub-agent"
AUXILIARY: Final = "auxiliary"
_LANES: Final = {CallKind.MAIN: MODEL, CallKind.SUB: SUB_AGENT, CallKind.AUX: AUXILIARY}
_ORDER: Final = (MODEL, SUB_AGENT, AUXILIARY, TOOL)
_PAUSE: Final = 0.05  # the longest pause on the axis, as a share of the working time
_LEAST_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Bar:
    """One call. `left` and `width` are shares of the axis; `row` counts from the top, over all lanes."""

    lane: str
    id: str
    name: str
    state: str
    started_at: float
    seconds: float | None  # None: it is still running
    row: int
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which nothing worked, drawn shorter than it was."""

    seconds: float
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of work, and its rows."""

    name: str
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All calls of a trajectory, in order of their start."""

    bars: tuple[Bar, ...]
    pauses: tuple[Pause, ...]
    lanes: tuple[Lane, ...]
    rows: int
    seconds: float
    worked_s: float  # seconds in which at least one call was running


@dataclass(frozen=True, slots=True)
class _Work:
    lane: str
    id: str
    name: str
    state: str
    start: float
    end: float | None


def build_timeline(view: TrajectoryView) -> Timeline:
    """Return the timeline of a trajectory; empty if it has no calls."""
    work = sorted([*map(_of_call, view.calls), *map(_of_tool, view.tool_calls)], key=lambda w: (w.start, w.id))
    if not work:
        return Timeline((), (), (), 0, 0.0, 0.0)
    last = max(w.end if w.end is not None else w.start for w in work)
    axis = _Axis([(w.start, _end(w, last)) for w in work])
    rows, lanes = _rows(work, last)
    bars = [_bar(w, row, axis, last) for w, row in zip(work, rows, strict=True)]
    return Timeline(
        tuple(bars), axis.pauses(), lanes, sum(one.rows for one in lanes), last - work[0].start, axis.worked
    )


def _of_call(call: CallView) -> _Work:
    return _Work(_LANES[call.call_kind], call.id, call.model, str(call.state), call.started_at, call.finished_at)


def _of_tool(one: ToolCallView) -> _Work:
    return _Work(TOOL, one.id, one.name, str(one.outcome), one.started_at, one.finished_at)


def _end(work: _Work, last: float) -> float:
    return max(work.start, work.end if work.end is not None else last)


def _bar(work: _Work, row: int, axis: _Axis, last: float) -> Bar:
    left, right = axis.at(work.start), axis.at(_end(work, last))
    seconds = None if work.end is None else max(0.0, work.end - work.start)
    return Bar(work.lane, work.id, work.name, work.state, work.start, seconds, row, left, right - left)


def _rows(work: Sequence[_Work], last: float) -> tuple[list[int], tuple[Lane, ...]]:
    """Assign each call the first row of its lane that is free at its start; return the rows and the lanes."""
    free: dict[str, list[float]] = {}
    own = []
    for one in work:
        ends = free.setdefault(one.lane, [])
        row = next((at for at, end in enumerate(ends) if end <= one.start), len(ends))
        ends[row : row + 1] = [_end(one, last)]
        own.append(row)
    lanes, first = [], 0
    for name in _ORDER:
        if name in free:
            lanes.append(Lane(name, first, len(free[name])))
            first += len(free[name])
    begins = {lane.name: lane.first_row for lane in lanes}
    return [begins[one.lane] + row for one, row in zip(work, own, strict=True)], tuple(lanes)


class _Axis:
    """The mapping of time to the axis: linear while something works, with long pauses shortened."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._busy = _merged(spans)
        self.worked = sum(end - start for start, end in self._busy)
        gaps = [after - before for (_, before), (after, _) in zip(self._busy, self._busy[1:], strict=False)]
        longest = max(self.worked, _LEAST_S) * _PAUSE
        self._gaps = [(gap, min(gap, longest)) for gap in gaps]
        self._whole = max(self.worked + sum(drawn for _, drawn in self._gaps), _LEAST_S)

    def at(self, time: float) -> float:
        """Return the position of a time as a share of the axis. Something must have worked at that time."""
        drawn = 0.0
        for (start, end), (_, gap) in zip(self._busy, [*self._gaps, (0.0, 0.0)], strict=True):
            if time <= end:
                return (drawn + max(0.0, time - start)) / self._whole
            drawn += end - start + gap
        return 1.0

    def pauses(self) -> tuple[Pause, ...]:
        """Return the pauses that are drawn shorter than they were."""
        found, drawn = [], 0.0
        for (start, end), (gap, shown) in zip(self._busy, self._gaps, strict=False):
            drawn += end - start
            if gap > shown:
                found.append(Pause(gap, drawn / self._whole, shown / self._whole))
            drawn += shown
        return tuple(found)


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
