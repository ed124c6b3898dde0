"""Which earlier keys a layer's queries attend to, and the tiles in which queries attend to them. Without torch.

Owns: windows, chunks, and dividing segments and their queries. Refuses: what a tile computes
(`trainer.policy.attention.scores`).

Everything is in positions of a row: a segment's window reaches into its ancestors. A tile of a window needs the keys of
its queries and one window more, so memory and work grow with tokens x window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.batch.packing import Segment


@dataclass(frozen=True, slots=True)
class Reach:
    """A query attends to the last `size` keys up to its own; or, `is_chunk`, to those since the last multiple of it."""

    size: int
    is_chunk: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries at positions start..stop of a row, which attend to keys at positions first_key..stop, causally.

    `window`: each attends to that many keys at most, its own included; None: to all of them that are not after it.
    """

    start: int
    stop: int
    first_key: int
    window: int | None = None

    @property
    def before(self) -> int:
        """How many of the keys are before the first query."""
        return self.start - self.first_key


def cut_segments(segments: Sequence[Segment], length: int) -> list[Segment]:
    """Return the segments with each longer one cut into a chain of segments of at most `length` tokens.

    A tile takes its keys from one of them and those before. From a segment of n tiles it would take them by n slices of
    the whole, and the backward pass of a slice fills the whole with zeros.
    """
    cut: list[Segment] = []
    lines: list[tuple[int, ...]] = []  # of each segment given, what it and its ancestors became
    for segment in segments:
        line = tuple(index for ancestor in segment.ancestors for index in lines[ancestor])
        own: tuple[int, ...] = ()
        for start, stop in _parts(segment.start, segment.stop, length):
            cut.append(Segment(start, stop, segment.offset + start - segment.start, line + own))
            own = (*own, len(cut) - 1)
        lines.append(own)
    return cut


def divide(reach: Reach | None, first: int, stop: int, step: int, window_step: int) -> list[Tile]:
    """Return the tiles of the queries at positions first..stop, ascending.

    `step`: most queries of a tile; `window_step`: of one from which a window hides keys.
    """
    if reach is None:
        return [Tile(start, end, 0) for start, end in _parts(first, stop, step)]
    if reach.is_chunk:
        chunks = _parts(first, stop, reach.size, first % reach.size)
        parts = [part for start, end in chunks for part in _parts(start, end, step)]
        return [Tile(start, end, start - start % reach.size) for start, end in parts]
    turn = min(max(first, reach.size), stop)  # up to here a window holds the whole row
    open_tiles = [Tile(start, end, 0) for start, end in _parts(first, turn, step)]
    # one key more than the first query attends to: masks of most tiles are equal, and their widths multiples of 16
    return open_tiles + [
        Tile(start, end, start - reach.size, reach.size) for start, end in _parts(turn, stop, window_step)
    ]


def _parts(start: int, stop: int, step: int, into: int = 0) -> list[tuple[int, int]]:
    """Divide start..stop into parts of `step`; the first one is shorter by `into`."""
    edges = [start, *range(start + step - into, stop, step), stop]
    return [(low, high) for low, high in pairwise(edges) if low < high]
