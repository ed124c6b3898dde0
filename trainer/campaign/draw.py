"""The draw of a campaign's scenarios: what a step attempts, and what replaces groups whose rewards turned out equal.

Owns: both draws, and writing them down before their attempts start, so that a resumed campaign attempts the same. Only
training scenarios are drawn here. Refuses: estimates and weights (`trainer.tasks.chances`), the order of a uniform draw
(`trainer.tasks.selection`), and running attempts (`trainer.campaign.sampling`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from recorder.queue import draws
from recorder.queue.campaigns import Scenario
from recorder.queue.draws import Draw, DrawReason, GroupOutcome
from recorder.store.database import Store
from trainer.campaign_settings import UNIFORM, CampaignSettings
from trainer.tasks.chances import ChanceEstimator, draw_by_chance
from trainer.tasks.selection import StepRange, draw_scenarios, most_refills, share_of_range, step_ranges


class ScenarioDraw:
    """Draws the scenarios of one campaign's steps. `train`: the training scenarios, in their stored order."""

    def __init__(self, store: Store, campaign_id: str, settings: CampaignSettings, train: Sequence[Scenario]) -> None:
        self._store = store
        self._campaign_id = campaign_id
        self._settings = settings
        self._train = train
        self._by_id = {one.id: one for one in train}

    async def scenarios(self, step: int) -> list[Scenario]:
        """The scenarios of a step (counted from 1), one group each, in the order of the groups.

        For a step that began before, they are the same as then, with those that have replaced others since.
        """
        s = self._settings
        if s.choose == UNIFORM and not s.refill:  # the seed alone determines it: nothing need be written
            return draw_scenarios(self._train, s.scenarios_per_step, step, s.seed, s.adversarial_share)
        drawn = await draws.list_draws(self._store, self._campaign_id, step)
        if not drawn:
            drawn = draw_step(self._train, s, step, await self._outcomes())
            await draws.write_draws(self._store, self._campaign_id, drawn)
        return self._scenarios(drawn)

    async def refill(self, step: int) -> list[Scenario] | None:
        """The scenarios of a step once more, with new ones for the newest groups whose rewards are equal.

        None: nothing is replaced, because no such group has equal rewards, or the step's share of extra attempts is
        spent, or no scenario is left. Call it when the step's groups are scored.
        """
        if not self._settings.refill:
            return None
        drawn = await draws.list_draws(self._store, self._campaign_id, step)
        new = draw_refill(self._train, self._settings, drawn, await self._outcomes())
        await draws.write_draws(self._store, self._campaign_id, new)
        return self._scenarios([*drawn, *new]) if new else None

    async def _outcomes(self) -> list[GroupOutcome]:
        return await draws.list_outcomes(self._store, self._campaign_id)

    def _scenarios(self, drawn: Sequence[Draw]) -> list[Scenario]:
        return [self._by_id[one.scenario_id] for one in drawn]


def draw_step(
    train: Sequence[Scenario], settings: CampaignSettings, step: int, outcomes: Sequence[GroupOutcome]
) -> list[Draw]:
    """What a step (counted from 1) draws: different scenarios, as many of each kind as a uniform draw has."""
    s = settings
    estimator, seed = ChanceEstimator(outcomes, step, s.group_size), f"{s.seed}:{step}:0"
    if s.choose == UNIFORM:
        uniform = draw_scenarios(train, s.scenarios_per_step, step, s.seed, s.adversarial_share)
        drawn = [(one, DrawReason.UNIFORM) for one in uniform]
    else:
        ranges = step_ranges(train, s.scenarios_per_step, step, s.adversarial_share)
        drawn = [pair for at, kind in enumerate(ranges) for pair in _choose(kind, s, estimator, f"{seed}:{at}")]
    return [_draw(step, place, one, 0, reason, estimator, seed) for place, (one, reason) in enumerate(drawn)]


def _choose(
    kind: StepRange[Scenario], settings: CampaignSettings, estimator: ChanceEstimator, seed: str
) -> Iterator[tuple[Scenario, DrawReason]]:
    """Those that are expected to differ, and then a share of the rest, drawn uniformly."""
    number = kind.end - kind.start
    explored = share_of_range(settings.explore_share, kind.start, kind.end)
    chances = [estimator.chance(one.id).differ for one in kind.scenarios]
    chosen = draw_by_chance(kind.scenarios, chances, number - explored, seed)
    yield from ((one, DrawReason.CHOSEN) for one in chosen)
    taken = {one.id for one in chosen}
    rest = [one for one in kind.scenarios if one.id not in taken]
    yield from ((one, DrawReason.EXPLORED) for one in random.Random(f"{seed}:explored").sample(rest, explored))


def draw_refill(
    train: Sequence[Scenario], settings: CampaignSettings, drawn: Sequence[Draw], outcomes: Sequence[GroupOutcome]
) -> list[Draw]:
    """What replaces groups of a step's newest draw whose rewards are equal: scenarios that the step does not have yet.

    `drawn`: all that the step has. An adversarial scenario is replaced by an adversarial one, and others by others. At
    most `refill` of what began the step is replaced; over the steps it is that share, to less than one.
    """
    if not drawn:
        return []
    s, step, newest = settings, drawn[0].step_number, drawn[-1].refill
    most = most_refills(train, s.scenarios_per_step, step, s.adversarial_share, s.refill)
    left = most - sum(one.refill > 0 for one in drawn)
    equal = {one.scenario_id for one in outcomes if one.step == step and one.equal}
    replaced = [one.scenario_id for one in drawn if one.refill == newest and one.scenario_id in equal][: max(0, left)]
    taken, estimator = {one.scenario_id for one in drawn}, ChanceEstimator(outcomes, step, s.group_size)
    seed = f"{s.seed}:{step}:{newest + 1}"
    found: list[Scenario] = []
    for at, kind in enumerate(step_ranges(train, s.scenarios_per_step, step, s.adversarial_share)):
        number = sum(one.id in replaced for one in kind.scenarios)
        rest = [one for one in kind.scenarios if one.id not in taken]
        chances = [1.0 if s.choose == UNIFORM else estimator.chance(one.id).differ for one in rest]
        found += draw_by_chance(rest, chances, number, f"{seed}:{at}")
    return [
        _draw(step, len(drawn) + place, one, newest + 1, DrawReason.REFILL, estimator, seed)
        for place, one in enumerate(found)
    ]


def _draw(
    step: int, place: int, one: Scenario, refill: int, reason: DrawReason, estimator: ChanceEstimator, seed: str
) -> Draw:
    chance = estimator.chance(one.id)
    return Draw(step, place, one.id, refill, reason, chance.reward, chance.differ, seed)
