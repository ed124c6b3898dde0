"""What `hone train` puts together: services, agent, trainer and a campaign that is new or gone on with.

Owns: what starts beside what: engine, agent and torch all take seconds, so they start together. Refuses: the steps
(`trainer.campaign.loop`) and the campaign's row (`trainer.campaign.begin`).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from proxy.settings.hone import HoneSettings
from recorder.holding import holders, leases
from recorder.learned.campaign_events import CampaignEnded, CampaignMeasure
from recorder.learned.campaign_history import read_history
from recorder.processes import file_modes
from recorder.registry.aliases import AliasView
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import campaigns
from recorder.work.campaigns import CampaignView
from trainer.agents.attempts import AttemptRunner
from trainer.campaign.begin import Plan, begin_or_find, hold, marked, still_ours
from trainer.campaign.loop import Campaign, Compared
from trainer.campaign.measure import Measurer
from trainer.campaign.sampling import Sampler
from trainer.errors import AliasBusy
from trainer.measuring import sides
from trainer.programs import comparing, left_out
from trainer.programs.attempting import endpoint_of, start_agents
from trainer.programs.reporting import failure_reported, leave_report
from trainer.programs.services import Services, Wanted
from trainer.progress import JsonLines, Progress, Said, Several, Status
from trainer.settings import TrainerSettings
from trainer.step.report import StepTrainer
from trainer.tracking import runs
from trainer.tracking.samples import Samples
from trainer.tracking.tracker import tracked

YIELD_TIMEOUT_S = 1800.0  # a step on a large model may take minutes, and is not cut short


class Trainer(StepTrainer, Protocol):
    """A trainer that is open."""

    async def close(self) -> None:
        """Give the alias back."""


OpenTrainer = Callable[[Store, AliasView, HoneSettings], Coroutine[Any, Any, Trainer]]


async def train(
    plan: Plan, everything: HoneSettings, wanted: Wanted, progress: Progress, open_with: OpenTrainer | None = None
) -> CampaignEnded:
    """Run a campaign to its end, with everything that it needs. `open_with` opens another trainer than the real one.

    What is told is also appended to `campaigns/<name>/events.jsonl` in the data folder, whatever `progress` is; at its
    end the campaign's report lies beside it.

    Raises the trainer's and recorder's errors; the campaign is then marked failed, or stopped where it was cancelled,
    and can be gone on with.
    """
    settings = plan.settings
    async with AsyncExitStack() as stack:
        progress = Several(progress, stack.enter_context(event_log(everything.data, plan.name)))
        measure = comparing.measure_of(plan, everything)
        _warn_of_blind_validation(plan, measure.yardstick, progress)
        services = await stack.enter_async_context(Services(wanted, lambda text: progress.tell(Said(text))))
        agent, *others = agents = await start_agents(settings, everything.data, stack)
        progress.tell(Status(0, "starting"))
        if open_with is None:
            warm = asyncio.create_task(asyncio.to_thread(_import_trainer), name="import torch")
            stack.push_async_callback(asyncio.gather, warm, return_exceptions=True)
        store = await services.store()
        alias = await services.alias(settings.alias)
        campaign = await begin_or_find(store, alias, plan, progress)
        owner = holders.holder_name()
        keeper = await stack.enter_async_context(hold(store, campaign, owner, settings.lease_s))
        kept = runs.of_campaign(campaign, settings, everything.trainer, everything.data)
        tracking = await stack.enter_async_context(
            tracked(everything.track, kept, progress, Samples(store, campaign.id))
        )
        tracking.again((await read_history(store, campaign)).events)
        told = Several(progress, tracking)
        await stack.enter_async_context(failure_reported(store, campaign, everything.data, progress))
        await stack.enter_async_context(marked(store, campaign))
        await stack.enter_async_context(left_out.telling(store, campaign.id, progress))
        open_with = partial(in_turn, open_with or open_trainer, campaign, progress)
        trainer = await stack.enter_async_context(opening(store, alias, everything, open_with))
        for started in agents:
            await started.ready()
        compared = Compared(
            measure.yardstick, measure.averaged, sides.of_campaign(settings, alias.name), measure.recipe
        )
        scopes = comparing.scopes_of(plan, measure.yardstick)
        endpoint = await endpoint_of(store, await services.ready(), alias, campaign, scopes, stack)
        endpoint = replace(endpoint, models=compared.sides.models(settings.val_attempts))
        runner = AttemptRunner(store, agent, endpoint, settings, owner, services.ready)
        run = Campaign(
            store,
            campaign,
            alias,
            settings,
            compared,
            sampler=Sampler(store, campaign, settings, runner, told, services.judge_runs),
            measurer=Measurer(store, settings, others[0] if others else None, told),
            trainer=trainer,
            lease_s=everything.trainer.lease_s,
            max_tries=everything.trainer.max_tries,
            progress=told,
            still_ours=lambda: still_ours(keeper, campaign),
            leave_report=lambda as_ended: leave_report(store, as_ended, everything.data, told),
        )
        ended = await run.run()
        told.tell(ended)  # last: scripts wait for it
        return ended


def _warn_of_blind_validation(plan: Plan, yardstick: CampaignMeasure, progress: Progress) -> None:
    if yardstick is CampaignMeasure.NOTHING and (plan.validates or plan.settings.plateau_steps is not None):
        text = (
            "nothing can be measured, so neither a target nor a plateau ends this campaign: RULER's scores compare the "
            "runs of one group. Set campaign.success, or give validation scenarios where RULER is the only reward"
        )
        progress.tell(Said(text, warning=True))


@contextmanager
def event_log(data: Path, name: str) -> Iterator[JsonLines]:
    """Where a campaign's events are kept; a campaign that is gone on with appends to them."""
    path = data / "campaigns" / name / "events.jsonl"
    file_modes.make_folder(path.parent)
    with open(path, "a", encoding="utf-8", opener=file_modes.opener) as file:
        yield JsonLines(file)


@asynccontextmanager
async def opening(
    store: Store, alias: AliasView, everything: HoneSettings, open_with: OpenTrainer
) -> AsyncIterator[asyncio.Task[Trainer]]:
    """The trainer of an alias, as a task that may still be loading; closed at the end."""
    task = asyncio.create_task(open_with(store, alias, everything), name="open the trainer")
    try:
        yield task
    finally:
        task.cancel()
        (opened,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(opened, BaseException):
            await opened.close()


async def open_trainer(store: Store, alias: AliasView, everything: HoneSettings) -> Trainer:
    """Load the base that the engine serves, and hold the alias."""
    module = await asyncio.to_thread(_import_trainer)
    await holders.release_dead(Project(store, alias.project_id), leases.trainer(alias.name))
    opened: Trainer = await module.AliasTrainer.open(store, alias, trainer_settings(everything), everything.data)
    return opened


async def in_turn(
    open_with: OpenTrainer,
    campaign: CampaignView,
    progress: Progress,
    store: Store,
    alias: AliasView,
    everything: HoneSettings,
) -> Trainer:
    """Open a campaign's trainer, when the learner has left it the alias: it does so between two steps.

    Raises `AliasBusy` where another campaign runs on the alias, or nobody lets go of it in time.
    """
    waits = 0.0
    while True:
        try:
            return await open_with(store, alias, everything)
        except AliasBusy as e:
            others = [one for one in await campaigns.running_on(store, alias.id) if one.id != campaign.id]
            if others:
                raise AliasBusy(f"campaign {others[0].name!r} trains the alias {alias.name!r} now. {e}") from e
            if waits >= YIELD_TIMEOUT_S:
                raise
            progress.tell(Status(0, "starting", detail="waiting for the learner to end its step: it makes way"))
            began = time.monotonic()
            await _until_let_go(store, alias, YIELD_TIMEOUT_S - waits)
            waits += time.monotonic() - began


async def _until_let_go(store: Store, alias: AliasView, patience_s: float) -> None:
    with suppress(TimeoutError):  # who asked tries once more, and says who holds it
        async with asyncio.timeout(patience_s):
            await holders.until_free(Project(store, alias.project_id), leases.trainer(alias.name))


def trainer_settings(everything: HoneSettings) -> TrainerSettings:
    """The trainer's settings, with the engine's base and precision where they name none of their own."""
    settings, engine = everything.trainer, everything.engine
    same: dict[str, Any] = {"base": settings.base or engine.base}
    if settings.dtype == "auto" and engine.dtype in ("float32", "bfloat16"):
        same["dtype"] = engine.dtype
    return settings.model_copy(update=same)


def _import_trainer() -> Any:
    # Threads that wait for work by spinning would take the cores that the engine on this machine needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return importlib.import_module("trainer.step.alias_trainer")
