"""Earlier trajectories that a step repeats (`trainer.rehearsal`).

Owns: which trajectory of an earlier group is repeated. Refuses: drawing groups
(`recorder.queue.training.earlier_groups`), how many and with which weight (`trainer.objectives.rehearsal`), rows.
"""

from __future__ import annotations

import random
from typing import Final

from recorder.queue.training.earlier_groups import draw_trained_groups
from recorder.views.lists.trajectories import trajectory_lines
from recorder.views.trajectories.transcripts import list_members, load_trajectory
from trainer.demonstrations.candidates import HeldOutScenarios, load_held_out, why_not_trained_on
from trainer.demonstrations.rows import demonstrate_trajectory
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis
from trainer.step.fits.context import RowContext
from trainer.tasks.conditions import is_best

DRAWN: Final = 2  # groups for each trajectory that is wanted: not every group has one that may be imitated


class RehearsalReader:
    """Draws and reads the earlier trajectories of an alias."""

    def __init__(self, context: RowContext, seed: int) -> None:
        """`seed`: with the version to train from, it decides what is drawn."""
        self._context = context
        self._seed = seed

    async def read(self, parent_id: str, number: int, basis: ImitateBasis) -> list[Demonstration]:
        """Return at most `number`, one of a group: of those with the highest reward, where rewards differ.

        They may have been repeated before. With few earlier steps there are fewer.
        """
        store = self._context.project.store
        seed = f"{self._seed} {parent_id}"
        groups = await draw_trained_groups(store, parent_id, DRAWN * number, seed)
        held_out = await load_held_out(store, self._context.alias.id) if groups else HeldOutScenarios()
        template = await self._context.find_template() if groups else None
        found: list[Demonstration] = []
        for group_id in groups:
            if len(found) == number:
                break
            if (best := await self._best(group_id, seed)) is None:
                continue
            view = await load_trajectory(store, best, with_tokens=True)
            if why_not_trained_on(view, held_out) is not None:
                continue
            made: Demonstration = await self._context.run(demonstrate_trajectory, view, basis, template)
            if made.code is None:
                found.append(made)
        return found

    async def _best(self, group_id: str, seed: str) -> str | None:
        """One of the members with the highest reward; None where rewards do not differ."""
        store = self._context.project.store
        lines = await trajectory_lines(store, await list_members(store, group_id))
        rewards = [one.reward for one in lines if one.reward is not None]
        best = sorted(one.id for one in lines if is_best(one.reward, rewards))
        return random.Random(f"{seed} {group_id}").choice(best) if best else None
