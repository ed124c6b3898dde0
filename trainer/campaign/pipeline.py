"""Sample a campaign's training attempts ahead of its steps (`campaign.max_lag`).

Owns: the task that runs attempts while steps are judged, trained and gated, planning the next step's attempts when
there is room for them, and the groups that each step takes. Refuses: how far it may sample ahead
(`trainer.campaign.lag`), running an attempt (`trainer.agents.attempts`), and which scenarios a step has.

What is planned, and which step took a group, is in the store before anything depends on it. So a campaign that was
killed goes on with the same groups: none is lost, and none enters two steps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from recorder.queue import attempts as store_attempts
from recorder.queue import entered_steps
from recorder.queue.campaigns import CampaignView, Scenario
from recorder.queue.entered_steps import PlannedGroup
from recorder.states import Purpose
from recorder.store.database import Store
from trainer.agents.attempts import EndedAttempt
from trainer.campaign.lag import LagRule, choose_groups
from trainer.campaign.sampling import AttemptRound, RoundSampler, RoundTally
from trainer.progress import PhaseStatus, Progress

# Another process may end attempts too: the sweep gives up those whose group has closed.
_LOOK_S: Final = 5.0


async def open_pipeline(
    store: Store,
    campaign: CampaignView,
    rule: LagRule,
    group_size: int,
    train: Sequence[Scenario],
    scenarios_of: Callable[[int], Awaitable[Sequence[Scenario]]],
    *,
    done: int,
    sampler: RoundSampler,
    progress: Progress,
) -> StepPipeline | None:
    """The pipeline of a campaign after `done` steps; None: nothing is sampled ahead.

    Without a lag there is one too if an earlier process of the campaign had a lag: its groups may be left over.
    """
    if rule.max_lag == 0 and not await entered_steps.samples_ahead(store, campaign.id):
        return None
    pipeline = StepPipeline(store, campaign, rule, group_size, train, scenarios_of, sampler=sampler, progress=progress)
    await pipeline.open(done)
    return pipeline


class StepPipeline:
    """The attempts of one campaign's steps. It feeds a runner that works beside the steps.

    `scenarios_of`: the scenarios of a step by its number; asked once a step, in order, just before its attempts begin.
    """

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        rule: LagRule,
        group_size: int,
        train: Sequence[Scenario],
        scenarios_of: Callable[[int], Awaitable[Sequence[Scenario]]],
        *,
        sampler: RoundSampler,
        progress: Progress,
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._rule = rule
        self._numbers = range(group_size)
        self._train = {scenario.id: scenario for scenario in train}
        self._scenarios_of = scenarios_of
        self._sampler = sampler
        self._progress = progress
        self._planned = self._step = self._last = 0  # steps: the last that is planned, in progress, that may be planned
        self._over = False
        self._changed = asyncio.Event()  # more may be planned
        self._news = asyncio.Event()  # an attempt has ended
        self._ended_now: Counter[str] = Counter()  # attempts that ended in this process, by group
        self._running: asyncio.Task[None] | None = None

    async def open(self, done: int) -> None:
        """Read what is planned. `done`: the steps that are done."""
        await entered_steps.enter_earlier_steps(self._store, self._campaign.id, done)
        self._planned = max(done, await entered_steps.last_planned_step(self._store, self._campaign.id))

    async def fill(self, step: int, *, held: bool) -> tuple[AttemptRound, RoundTally]:
        """Wait until a step has its groups; return them as a round, and the outcomes of their attempts.

        From then on, attempts of later steps begin. `held`: the step before it failed, so none do.

        Raises what running attempts raises.
        """
        self._step, self._last = step, self._rule.last_sampled(step, held=held)
        self._changed.set()
        if self._running is None:
            self._running = asyncio.create_task(self._sampler.run_ahead(self, self._count), name="sample ahead")
        taken = await entered_steps.list_entered_groups(self._store, self._campaign.id, step)
        if not taken:
            await self._until_taken(step)
            taken = await entered_steps.list_entered_groups(self._store, self._campaign.id, step)
        scenarios = [self._train[id_] for id_ in taken.values()]
        of = AttemptRound(step, Purpose.TRAIN, scenarios, self._numbers)
        await self._sampler.close_what_is_open(of)
        tally = await self._sampler.tally_of(of)
        tally.ended_now = sum(self._ended_now.pop(name, 0) for name in taken)
        self._progress.tell(PhaseStatus(step, "sampling", tally.done, tally.total))
        self._sampler.tell_unanswered(tally)
        return of, tally

    def hold(self) -> None:
        """Begin no further step's attempts until the next step: the version was rejected."""
        self._last = min(self._last, max(self._step, self._planned))

    async def close(self) -> None:
        """Stop sampling. Attempts that run are cancelled, and planned again by the process that resumes."""
        self._over = True
        self._changed.set()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def pause(self) -> None:
        """Stop sampling, and plan the attempts that ran again."""
        await self.close()
        await store_attempts.abandon_running(self._store, self._campaign.id)

    async def end(self) -> int:
        """Stop sampling, and exclude the groups that no step took; return how many of their attempts had begun."""
        await self.close()
        return await entered_steps.end_waiting_groups(self._store, self._campaign.id)

    # --- the feed of the runner

    @property
    def is_over(self) -> bool:
        """Whether no more will come."""
        return self._over

    async def plan_more(self) -> bool:
        """Plan the attempts of the next step, if they may begin."""
        step = self._planned + 1
        if self._over or step > self._last:
            return False
        scenarios = await self._scenarios_of(step)
        await self._sampler.plan(AttemptRound(step, Purpose.TRAIN, scenarios, self._numbers))
        self._planned = step
        self._news.set()
        return True

    async def until_more(self) -> None:
        """Return when the next step's attempts may begin."""
        await self._changed.wait()
        self._changed.clear()

    def _count(self, ended: EndedAttempt) -> None:
        if not ended.again:
            self._ended_now[ended.attempt.group_external_id] += 1
        self._news.set()

    # --- the groups of a step

    async def _until_taken(self, step: int) -> None:
        takes_all = self._rule.takes_all(step)
        while True:
            self._news.clear()
            waiting = await entered_steps.list_waiting_groups(self._store, self._campaign.id)
            if self._planned >= step:
                count = await entered_steps.count_planned_groups(self._store, self._campaign.id, step)
                names = choose_groups(waiting, step, count, takes_all=takes_all)
                if names is not None:
                    await entered_steps.enter_groups(self._store, self._campaign.id, step, names)
                    return
                self._tell(step, waiting, count)
            await self._until_news()

    def _tell(self, step: int, waiting: Sequence[PlannedGroup], count: int) -> None:
        total = count * len(self._numbers)
        ended = sum(group.ended for group in waiting)
        self._progress.tell(PhaseStatus(step, "sampling", min(ended, total), total))

    async def _until_news(self) -> None:
        assert self._running is not None
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, self._running}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if self._running.done():
            self._running.result()  # it ends only by an error, which is raised here
