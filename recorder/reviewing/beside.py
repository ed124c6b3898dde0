"""Two runs as a person sees them who is to choose: what they did, turn by turn, and nothing that was made of it.

Owns: what is shown of a pair. Refuses: versions, models, rewards and judges' words: none of it is read here. What the
agents themselves wrote is shown as it is, also where it names a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from recorder.comparing.comparison import Cell, side_by_side
from recorder.comparing.loading import turns_of_run
from recorder.errors import NotFound
from recorder.reading.transcripts import load_trajectories
from recorder.store.database import Store

NAMES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Beside:
    """`beginning` is what both begin with, `rows` what comes then, a cell a run; `turns_left`: of each, how many turns
    are not shown."""

    beginning: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    turns_left: Sequence[int]


async def beside(store: Store, first: str, second: str) -> Beside:
    """Two runs by their ids. Raises NotFound."""
    views = {view.id: view for view in await load_trajectories(store, [first, second])}
    if gone := [run for run in (first, second) if run not in views]:
        raise NotFound(f"the run {gone[0]} is gone: open the queue again")
    turns = [(number, turns_of_run(views[run])) for number, run in enumerate((first, second), start=1)]
    return Beside(*await asyncio.to_thread(side_by_side, turns))  # long runs take a while, and calls go on
