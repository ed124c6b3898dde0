"""When models and tools worked for a run: bars on one axis, where long pauses take little room.

Owns: the bars, their lanes and rows, how time is laid out. Refuses: drawing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.states import CallKind
from recorder.views.trajectories.shapes import CallView, ToolCallView, TrajectoryView

MODEL: Final = "model"
TOOL: Final = "tool"
_LANES: Final = {CallKind.MAIN: MODEL, CallKind.SUB: "sub-agent", CallKind.AUX: "errand"}
_ORDER: Final = (MODEL, "sub-agent", "errand", TOOL)
_PAUSE: Final = 0.05  # of the working time: a longer pause takes this much
_LEAST_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Bar:
    """One call. `left`, `width`: shares of the axis; `row`: counted from the top, those of a lane side by side."""

    lane: str
    id: str
    name: str
    state: str
    started_at: float
    seconds: float | None  # None: it goes on
    row: int
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which nothing worked, and that is drawn shorter than it was."""

    seconds: float
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One kind of work, and which rows it has."""

    name: str
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of a run's work, by start."""

    bars: tuple[Bar, ...]
    pauses: tuple[Pause, ...]
    lanes: tuple[Lane, ...]
    rows: int
    seconds: float
    worked_s: float  # in which something worked


@dataclass(frozen=True, slots=True)
class _Work:
    lane: str
    id: str
    name: str
    state: str
    start: float
    end: float | None


def build_timeline(view: TrajectoryView) -> Timeline:
    """The timeline of a run."""
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
    """A row for each: the first of its lane that is free by then."""
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
    """Time as it is laid out: as it went while something worked, long pauses shortened."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._busy = _merged(spans)
        self.worked = sum(end - start for start, end in self._busy)
        gaps = [after - before for (_, before), (after, _) in zip(self._busy, self._busy[1:], strict=False)]
        longest = max(self.worked, _LEAST_S) * _PAUSE
        self._gaps = [(gap, min(gap, longest)) for gap in gaps]
        self._whole = max(self.worked + sum(drawn for _, drawn in self._gaps), _LEAST_S)

    def at(self, time: float) -> float:
        """Where a time lies, as a share of the axis; it is one at which something worked."""
        drawn = 0.0
        for (start, end), (_, gap) in zip(self._busy, [*self._gaps, (0.0, 0.0)], strict=True):
            if time <= end:
                return (drawn + max(0.0, time - start)) / self._whole
            drawn += end - start + gap
        return 1.0

    def pauses(self) -> tuple[Pause, ...]:
        """The pauses that are drawn shorter than they were."""
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
