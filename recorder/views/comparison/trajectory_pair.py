"""Two trajectories of different groups side by side: of one task before and after a version learned.

Owns: loading them and aligning their turns. Refuses: which two (`recorder.views.versions.held_out`), and attempts of
one group (`recorder.views.comparison.loader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from recorder.store.database import Store
from recorder.views.comparison.attempts import ComparisonCell, side_by_side
from recorder.views.comparison.loader import trajectory_turns
from recorder.views.trajectories.transcripts import load_trajectories


@dataclass(frozen=True, slots=True)
class TrajectoryPair:
    """Two trajectories by their ids. `beginning`: the turns that both share first; `rows`: those after them.

    A row has a cell for each. `not_shown`: for each, the number of turns that are not compared.
    """

    before: str
    after: str
    beginning: tuple[ComparisonCell, ...]
    rows: tuple[tuple[ComparisonCell, ...], ...]
    not_shown: tuple[int, ...]


async def load_pairs(store: Store, pairs: Sequence[tuple[str, str]]) -> list[TrajectoryPair | None]:
    """Return the comparison of each two trajectories, the older one first; None where one of them is deleted."""
    ids = list(dict.fromkeys(id_ for pair in pairs for id_ in pair))
    views = {view.id: view for view in await load_trajectories(store, ids)} if ids else {}

    def compare(before: str, after: str) -> TrajectoryPair | None:
        if before not in views or after not in views:
            return None
        turns = [(number, trajectory_turns(views[id_])) for number, id_ in enumerate((before, after), 1)]
        return TrajectoryPair(before, after, *side_by_side(turns))

    # aligning many long attempts would block the event loop
    return await asyncio.to_thread(lambda: [compare(*pair) for pair in pairs])
