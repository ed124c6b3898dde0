"""Attempts that a version's gate requested: held-out scenarios, as the new version and as the live one, in rounds.

Owns: which scenarios make a round, its groups and attempts (which a restarted process finds by their names), and the
value of each attempt. Refuses: running an attempt (`trainer.agents.attempts`), success
(`trainer.campaign.measurement`), and the decision: the gate decides from the pairs, and then ends the request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from recorder.queue import attempts as store_attempts
from recorder.queue import campaigns, gate_requests
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import GroupBinding, Scenario
from recorder.queue.gate_requests import GateArm, GateRequest
from recorder.queue.groups import closure
from recorder.states import CampaignState, GroupState, Purpose
from recorder.store.database import Project, Store
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import GroupView
from trainer.agents.attempts import AttemptRunner
from trainer.campaign.measurement import RoundMeasurer

ROUND: Final = 8  # scenarios between two looks of the gate
AGAIN: Final = 4  # maximum attempts at one scenario: more would weigh it too much

T = TypeVar("T")


def gate_rounds(tasks: Sequence[T], pairs: int, seed: str) -> list[list[T]]:
    """The scenarios of each round, at most `pairs` in all: as many passes as allowed, each in another order."""
    found: list[list[T]] = []
    for turn in range(AGAIN):
        order = list(tasks)
        random.Random(f"{seed}:{turn}").shuffle(order)
        order = order[: pairs - sum(map(len, found))]
        found += [order[at : at + ROUND] for at in range(0, len(order), ROUND)]
    return found


class GateExamination:
    """One gate request, from its current state to its last round."""

    def __init__(
        self,
        store: Store,
        wish: GateRequest,
        runner: AttemptRunner,
        measurer: RoundMeasurer,
        still_ours: Callable[[], None],
    ) -> None:
        self._store = store
        self._wish = wish
        self._row = wish.row
        self._runner = runner
        self._measurer = measurer
        self._still_ours = still_ours  # raises CampaignBusy when the wish's lease was lost

    async def run(self) -> None:
        """Attempt and measure what is not done yet, then mark all as attempted."""
        tasks = await campaigns.list_scenarios(self._store, self._row.id, "val")
        for number, drawn in enumerate(gate_rounds(tasks, self._wish.pairs, self._wish.version), start=1):
            if number > self._row.steps_done:
                self._still_ours()
                await self._plan(number, drawn)
                await self._runner.run_all(self._row.id, lambda ended: None)
                await self._measure(number)
        await gate_requests.end_request(self._store, self._row.id, CampaignState.FINISHED, gate_requests.ATTEMPTED)

    async def give_up(self) -> None:
        """Close everything of a request that has ended: nobody continues its attempts."""
        await store_attempts.abandon_running(self._store, self._row.id)
        for number in range(1, len(await self._planned()) + 1):
            for group in await campaigns.group_states(self._store, self._row.id, number, Purpose.EVAL):
                if group.state is GroupState.OPEN:
                    await closure.close_group(Project(self._store, self._row.project_id), group.group_id)

    async def _planned(self) -> list[list[Scenario]]:
        tasks = await campaigns.list_scenarios(self._store, self._row.id, "val")
        return gate_rounds(tasks, self._wish.pairs, self._wish.version)

    async def _plan(self, number: int, drawn: Sequence[Scenario]) -> None:
        row = self._row
        named = [
            (f"{row.id}.{number:04d}.{index:04d}.{arm.name.lower()}", scenario.id, arm)
            for index, scenario in enumerate(drawn)
            for arm in GateArm
        ]
        bindings = [GroupBinding(group, scenario_id, 1) for group, scenario_id, _ in named]
        await campaigns.bind_groups(Project(self._store, row.project_id), row.id, row.alias_id, bindings)
        new = [NewAttempt(task, number, Purpose.EVAL, int(arm), group, "0") for group, task, arm in named]
        await store_attempts.new_attempts(self._store, row.id, new)

    async def _measure(self, number: int) -> None:
        """Run the success function on a round's attempts, and store the results."""
        there = await campaigns.group_states(self._store, self._row.id, number, Purpose.EVAL)
        groups = await transcripts.load_groups(self._store, [group.group_id for group in there])
        worth = await asyncio.gather(*(self._worth(group) for group in groups))
        known = {
            group.external_id or "": float(won) for group, won in zip(groups, worth, strict=True) if won is not None
        }
        await gate_requests.write_round(self._store, self._row.id, number, known)

    async def _worth(self, group: GroupView) -> bool | None:
        """Whether the attempt that counts succeeded: the last one, because earlier ones were repeated."""
        told = [await self._measurer.success(member, {}) for member in group.members]
        return next((won for won in reversed(told) if won is not None), None)
