"""An evaluation: a round of groups a seed, in each of which every version attempts a scenario; then what came of it.

Owns: the order, and giving up where attempts say nothing of a version. Refuses: attempts and patience with the judge
(`trainer.campaign.sampling`), success and worth (`trainer.campaign.measure`), figures (`trainer.evaluating.figures`).

What ended is found again by the names of groups and attempts, so a program that was killed goes on where it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recorder.registry import replicas, versions
from recorder.registry.versions import VersionView
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import spending
from recorder.work.campaigns import CampaignView, GroupStatus, Scenario
from recorder.work.spending import Judged
from trainer.campaign.measure import Measurer
from trainer.campaign.sampling import Round, Sampler, Tally, refuse_broken_agent
from trainer.errors import CampaignError
from trainer.evaluating import rows
from trainer.evaluating.asked import Asked, Measures
from trainer.evaluating.figures import Version
from trainer.evaluating.figures import versions as figures_of
from trainer.evaluating.outcomes import Outcome, outcomes
from trainer.measuring.sides import Side
from trainer.programs.services import RECENT_S
from trainer.progress import Event, Progress, Status

_PAGE: Final = 32  # groups whose conversations are in memory at a time


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What came of it. `unscored`: of the `groups`, those that no judge gave a score, where one was waited for."""

    id: str
    alias: str
    scenarios: int
    tempting: int  # of the scenarios
    attempts: int
    seeds: int
    versions: Sequence[Version]
    groups: int
    unscored: int
    judging: Judged | None  # None: nobody waited for a judge
    seconds: float
    failed: Mapping[str, int] = field(default_factory=dict)  # attempts, by why
    first_error: str | None = None


class Seeds:
    """A progress that says of which seed a round is, where a campaign's would be of a step, and each tenth of it.

    What stands beside a count is the tenth alone: where no line can change, there is one line for each.
    """

    def __init__(self, progress: Progress, seeds: int) -> None:
        self._progress = progress
        self._seeds = seeds

    def tell(self, event: Event) -> None:
        """Pass the event on."""
        if isinstance(event, Status) and event.step:
            phase = "attempting" if event.phase == "validating" else event.phase
            tenth = (
                f"{100 * (10 * event.done // event.total) // 10} %" if event.total and event.done is not None else ""
            )
            event = replace(event, step=0, phase=f"seed {event.step} of {self._seeds} · {phase}", detail=tenth)
        self._progress.tell(event)


class Evaluation:
    """One evaluation, from where it stands to its end. `sides`: its versions, in order."""

    def __init__(
        self,
        store: Store,
        row: CampaignView,
        alias: str,
        asked: Asked,
        sides: Sequence[Side],
        told: Measures,
        *,
        sampler: Sampler,
        measurer: Measurer,
        still_ours: Callable[[], None],
    ) -> None:
        self._store = store
        self._row = row
        self._alias = alias
        self._asked = asked
        self._sides = sides
        self._told = told
        self._sampler = sampler
        self._measurer = measurer
        self._judged = measurer.needs_scores
        self._still_ours = still_ours  # raises CampaignBusy when the row's lease was lost

    async def run(self) -> Evaluated:
        """Attempt what is not done yet, wait for scores, and end the evaluation.

        Raises `CampaignError` where a version goes out of service, or not one attempt of a round came to its end.
        """
        began = time.monotonic()
        tasks = await rows.tasks_of(self._store, self._row)
        rounds = [self._round(seed, tasks) for seed in range(1, self._asked.seeds + 1)]
        failed, first_error = Counter[str](), None
        for one in rounds:
            self._still_ours()
            tally = await self._sampler.sample(one)
            await self._require_sound(one, tally)
            failed += tally.failed
            first_error = first_error or tally.first_error
        groups = [group for one in rounds for group in await self._groups(one)]
        made = [outcome async for outcome in self._outcomes(groups)]
        found = Evaluated(
            self._row.id,
            self._alias,
            scenarios=len(tasks),
            tempting=sum(task.adversarial for task in tasks),
            attempts=self._asked.attempts,
            seeds=self._asked.seeds,
            versions=figures_of(self._sides, made, self._told),
            groups=len(groups),
            unscored=sum(group.current_score_id is None for group in groups) if self._judged else 0,
            judging=await spending.judged_for(self._store, self._row) if self._judged else None,
            seconds=time.monotonic() - began,
            failed=failed,
            first_error=first_error,
        )
        await rows.over(self._store, self._row, rows.COMPARED)
        return found

    def _round(self, seed: int, tasks: Sequence[Scenario]) -> Round:
        numbers = [number for side in self._sides for number in side.numbers(self._asked.attempts)]
        return Round(seed, Purpose.EVAL, tasks, numbers, called="seed")

    async def _groups(self, of: Round) -> list[GroupStatus]:
        return await (self._sampler.scored(of) if self._judged else self._sampler.groups(of))

    async def _outcomes(self, groups: Sequence[GroupStatus]) -> AsyncIterator[Outcome]:
        for at in range(0, len(groups), _PAGE):
            page = groups[at : at + _PAGE]
            success: Mapping[str, bool] = {}
            if self._told.success:
                success = (await self._measurer.measure(page)).succeeded
            tempting = [group.group_id for group in page if group.adversarial]
            for one in outcomes(await self._measurer.load(page), success, self._asked.attempts, tempting):
                yield one

    async def _require_sound(self, of: Round, tally: Tally) -> None:
        """Give up for good where attempts failed by no fault of their version: they are not made again."""
        try:
            await require_in_service(Project(self._store, self._row.project_id), [side.model for side in self._sides])
            refuse_broken_agent(of, tally)
        except CampaignError:
            await rows.over(self._store, self._row, rows.SPOILT)
            raise


async def require_in_service(project: Project, models: Sequence[str]) -> None:
    """Raise `CampaignError` where an engine holds a version no more: an adapter that attempts cannot ask for."""
    compared = [one for one in await versions.get_versions(project) if one.name in models and one.number]
    up = [one for one in await replicas.list_replicas(project, RECENT_S) if one.state == "up"]
    if up and (gone := next((one for one in compared if not _is_held(one, up)), None)):
        raise CampaignError(
            f"no engine holds {gone.name} (it is {gone.state}): it cannot be asked for. Give it a share of runs "
            f"(`hone canary {gone.name} PERCENT`) or make it live (`hone promote {gone.name}`), or compare others."
        )


def _is_held(version: VersionView, up: Sequence[replicas.ReplicaView]) -> bool:
    return any(version.engine_name in replica.loaded for replica in up)
