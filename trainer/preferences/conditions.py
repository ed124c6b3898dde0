"""Conditions on the sides of pairs: `tag.team=billing`, `chosen.reward>=0.9`, `rejected.version=helpdesk@3`.

Owns: their form, and which pairs meet them. Refuses: the form of a condition on one trajectory
(`trainer.tasks.conditions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recorder.store.database import Store
from recorder.views.lists.trajectories import trajectory_lines
from recorder.views.trajectories.transcripts import load_trajectories
from trainer.demonstrations.candidates import ConditionFacts, may_meet
from trainer.preferences.pairs import PairCandidate
from trainer.tasks.conditions import Condition, parse_condition

_CHOSEN, _REJECTED = "chosen.", "rejected."
_PAGE: Final = 25  # pairs whose trajectories are in memory at a time


@dataclass(frozen=True, slots=True)
class SideConditions:
    """What the chosen side, and what the rejected side of a pair has to meet."""

    chosen: Sequence[Condition] = ()
    rejected: Sequence[Condition] = ()

    def __bool__(self) -> bool:
        return bool(self.chosen or self.rejected)


def parse_side_conditions(where: Sequence[str]) -> SideConditions:
    """Read conditions: one with the prefix `chosen.` or `rejected.` is for that side, any other for both.

    Raises `ConditionInvalid`.
    """
    chosen, rejected = [], []
    for text in where:
        bare = text.lstrip()
        side = next((prefix for prefix in (_CHOSEN, _REJECTED) if bare.startswith(prefix)), "")
        one = parse_condition(bare.removeprefix(side), of_groups=True)
        if side != _REJECTED:
            chosen.append(one)
        if side != _CHOSEN:
            rejected.append(one)
    return SideConditions(chosen, rejected)


class PairSelection:
    """Selects pairs by conditions on their sides."""

    def __init__(self, store: Store, conditions: SideConditions) -> None:
        self._store = store
        self._conditions = conditions
        self._facts = ConditionFacts(store)
        self._met: dict[tuple[str, bool], bool] = {}  # by trajectory, and whether it is the chosen side

    async def select(self, pairs: Sequence[PairCandidate]) -> list[PairCandidate]:
        """Return the pairs both of whose sides meet their conditions, in their order."""
        if not self._conditions:
            return list(pairs)
        for at in range(0, len(pairs), _PAGE):
            await self._look_at(pairs[at : at + _PAGE])
        return [one for one in pairs if all(self._met[side] for side in _sides(one))]

    async def _look_at(self, pairs: Sequence[PairCandidate]) -> None:
        sides = [side for one in pairs for side in _sides(one) if side not in self._met]
        lines = {line.id: line for line in await trajectory_lines(self._store, sorted({id_ for id_, _ in sides}))}
        hopeful = [(id_, chosen) for id_, chosen in sides if id_ in lines and may_meet(self._of(chosen), lines[id_])]
        views = {view.id: view for view in await load_trajectories(self._store, sorted({id_ for id_, _ in hopeful}))}
        self._met |= dict.fromkeys(sides, False)
        for id_, chosen in hopeful:
            if id_ in views:  # it was not deleted meanwhile
                self._met[id_, chosen] = await self._facts.meet(self._of(chosen), lines[id_], views[id_])

    def _of(self, chosen: bool) -> Sequence[Condition]:
        return self._conditions.chosen if chosen else self._conditions.rejected


def _sides(pair: PairCandidate) -> tuple[tuple[str, bool], tuple[str, bool]]:
    return (pair.chosen, True), (pair.rejected, False)
