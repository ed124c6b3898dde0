"""What a campaign measures beside its steps: validations, baselines before the first step, the test part at the end.

Owns: which rounds those are, by whom each scenario is attempted, and that each is written down once. Refuses: when it
is time for one (`trainer.campaign.loop`), and any training: none of these attempts is there for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from recorder.reading import transcripts
from recorder.reading.views import GroupView, TrajectoryView
from recorder.registry.retention import VALIDATION
from recorder.registry.versions import VersionView
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.work import scores
from recorder.work.campaigns import CampaignView, GroupStatus, Scenario
from recorder.work.scores import REWARD, NewPart
from trainer.campaign import history as course
from trainer.campaign.history import BASELINE, TEST, History
from trainer.campaign.measure import Measurer, spoilt
from trainer.campaign.sampling import Round, Sampler, Tally
from trainer.campaign_settings import BASE, CampaignSettings
from trainer.measuring import looks, wins
from trainer.measuring.sides import Side, Sides, named
from trainer.measuring.wins import Worth
from trainer.measuring.yardstick import SPREAD, Yardstick
from trainer.progress import Progress, Validated


class Validator:
    """Measures for one campaign. `refuse` raises where the agent is broken."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        settings: CampaignSettings,
        *,
        sides: Sides,
        yardstick: Yardstick,
        averaged: bool,
        sampler: Sampler,
        measurer: Measurer,
        progress: Progress,
        refuse: Callable[[int, Tally], None],
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._settings = settings
        self._sides = sides
        self._yardstick = yardstick
        self._averaged = averaged  # whether the mean of the rewards says anything: of RULER's it does not
        self._sampler = sampler
        self._measurer = measurer
        self._progress = progress
        self._refuse = refuse

    async def validate(self, history: History, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure the version in service after the steps that are done."""
        of = self._round(history.steps_done, Purpose.VAL, tasks, self._sides.live)
        done = await self._measure(of, self._sides.live, live.name)
        history.validations.append(done)
        await self._write(VALIDATION, done)

    async def baselines(self, history: History, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure each baseline that was not measured yet. What was measured of version 0 itself is not done again."""
        for name in named(self._settings):
            if any(one.version == name for one in history.baselines):
                continue
            own = next((v for v in history.validations if v.step == 0), None) if live.number == 0 else None
            if name == BASE and own is not None:
                done = replace(own, version=BASE, baseline=True)
            else:
                side = self._sides.of(name)
                of = self._round(0, Purpose.EVAL, tasks, side)
                done = replace(await self._measure(of, side, name), baseline=True)
            history.baselines.append(done)
            await self._write(BASELINE, done)

    async def test(self, history: History, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure what serves at the end, version 0 and the baselines with scenarios that nobody has seen before."""
        rivals = [self._sides.of(name) for name in dict.fromkeys([BASE, *named(self._settings)])]
        for side in (self._sides.live, *rivals):
            name = live.name if side is self._sides.live else side.name
            if any(one.version == name for one in history.tests):
                continue
            of = self._round(history.steps_done, Purpose.EVAL, tasks, side, key="test")
            done = replace(await self._measure(of, side, name), part="test", baseline=side is not self._sides.live)
            history.tests.append(done)
            await self._write(TEST, done)

    def _round(self, step: int, purpose: Purpose, tasks: Sequence[Scenario], side: Side, key: str = "") -> Round:
        numbers = side.numbers(self._settings.val_attempts)
        if self._yardstick is Yardstick.WINS:
            numbers.append(self._sides.beside(side))  # the last of each group is version 0's
        keys = [key, f"side{side.place}" if purpose is Purpose.EVAL else ""]
        return Round(step, purpose, tasks, numbers, "-".join(one for one in keys if one))

    async def _measure(self, of: Round, side: Side, name: str) -> Validated:
        began = time.monotonic()
        tally = await self._sampler.sample(of)
        self._refuse(of.step, tally)
        groups = await (self._sampler.scored(of) if self._measurer.needs_scores else self._sampler.groups(of))
        measured = await self._measurer.measure(groups)
        views, parts = await self._read(groups)
        ours = range(self._settings.val_attempts)
        own = [member for view in views for member in view.members if _place(member) in ours]
        rewards = [part.value for part in parts if part.part == REWARD and part.value is not None]
        figures = looks.figures(own, parts)
        if self._yardstick is Yardstick.REWARD and len(rewards) > 1:
            figures[SPREAD] = statistics.stdev(rewards)
        won = self._wins(views, parts) if self._yardstick is Yardstick.WINS else wins.Wins(None, measured.attempts)
        return Validated(
            step=of.step,
            version=name,
            success=measured.success,
            reward=measured.reward if self._averaged else None,
            attempts=won.compared,
            errored=sum(tally.failed.values()),
            seconds=time.monotonic() - began,
            win_rate=won.share,
            figures=figures,
        )

    async def _read(self, groups: Sequence[GroupStatus]) -> tuple[list[GroupView], list[NewPart]]:
        views = await transcripts.load_groups(self._store, [group.group_id for group in groups])
        ids = [group.current_score_id for group in groups if group.current_score_id is not None]
        found = await scores.get_scores(self._store, ids)
        return views, [part for score in found.values() for part in score.parts]

    def _wins(self, views: Sequence[GroupView], parts: Sequence[NewPart]) -> wins.Wins:
        rewards = {part.trajectory_id: part.value for part in parts if part.part == REWARD}
        each = self._settings.val_attempts
        compared = []
        for view in views:
            worth: dict[int, Worth] = {}  # of attempts that were run again, the one that counts
            for member in view.members:
                found = Worth(rewards.get(member.id), spoilt(member))
                if found.value is not None:
                    worth[_place(member)] = found
            if each in worth:
                compared.append(([one for place, one in worth.items() if 0 <= place < each], worth[each]))
        return wins.counted(compared)

    async def _write(self, code: str, done: Validated) -> None:
        await course.write(self._store, self._campaign, code, done)
        self._progress.tell(done)


def _place(member: TrajectoryView) -> int:
    """Which of its group's attempts a member is, by the name that the sampler gave it; -1: somebody else's."""
    name = (member.external_id or "").partition("~")[0]
    return int(name) if name.isdigit() else -1
