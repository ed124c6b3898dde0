"""What `hone eval` puts together: services, agent, and an evaluation that is new or gone on with.

Owns: what starts beside what. Refuses: the rounds (`trainer.evaluating.evaluation`), and its row
(`trainer.evaluating.rows`).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from proxy.settings.hone import HoneSettings
from recorder.holding import holders
from recorder.registry import keys, versions
from recorder.registry.aliases import AliasView
from recorder.store.database import Store
from recorder.store.project import Project
from trainer.agents.attempts import AttemptRunner
from trainer.campaign.begin import hold, marked, still_ours
from trainer.campaign.measure import Measurer
from trainer.campaign.sampling import Sampler
from trainer.evaluating.asked import Asked, Measures, by_function, measures, resolved, told
from trainer.evaluating.evaluation import Evaluated, Evaluation, Seeds, require_in_service
from trainer.evaluating.rows import begin_or_find
from trainer.measuring.sides import Side
from trainer.programs import comparing
from trainer.programs.attempting import endpoint_of, start_agents
from trainer.programs.services import Services, Wanted
from trainer.progress import Progress, Said, Status


def measured_by(asked: Asked, everything: HoneSettings) -> Measures:
    """What can be told of the versions, as the settings have it. Raises `CampaignError` where nothing can."""
    rewards = comparing.recipe_of(asked.settings, everything).in_force()
    return measures(asked.settings, rewards, len(asked.names))


async def evaluate(asked: Asked, everything: HoneSettings, wanted: Wanted, progress: Progress) -> Evaluated:
    """Run an evaluation to its end, with everything that it needs.

    Raises the trainer's and recorder's errors; the evaluation is then marked failed, or stopped where it was cancelled,
    and the same one is gone on with.
    """
    settings, progress = asked.settings, Seeds(progress, asked.seeds)
    found, recipe = measured_by(asked, everything), comparing.recipe_of(settings, everything)
    wanted = replace(wanted, judge=not by_function(settings))
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(Services(wanted, lambda text: progress.tell(Said(text))))
        agent, *others = agents = await start_agents(settings, everything.data, stack)
        progress.tell(Status(0, "starting"))
        store = await services.store()
        alias = await services.alias(settings.alias)
        sides = await _sides(store, alias, asked, everything)
        url = await services.ready()
        await require_in_service(Project(store, alias.project_id), [side.model for side in sides])
        reward = recipe.model_dump(mode="json", include=comparing.OF_THE_REWARD)
        row = await begin_or_find(store, alias, asked, told(asked, sides, reward), progress)
        owner = holders.holder_name()
        keeper = await stack.enter_async_context(hold(store, row, owner, settings.lease_s))
        await stack.enter_async_context(marked(store, row))
        for started in agents:
            await started.ready()
        scopes = [keys.Scope.INFER, keys.Scope.EVAL]  # it asks for versions by name
        endpoint = await endpoint_of(store, url, alias, row, scopes, stack)
        models = {number: side.model for side in sides for number in side.numbers(asked.attempts)}
        runner = AttemptRunner(store, agent, replace(endpoint, models=models), settings, owner, services.ready)
        run = Evaluation(
            store,
            row,
            alias.name,
            asked,
            sides,
            found,
            sampler=Sampler(store, row, settings, runner, progress, services.judge_runs),
            measurer=Measurer(store, settings, others[0] if others else None, progress),
            still_ours=lambda: still_ours(keeper, row),
        )
        return await run.run()


async def _sides(store: Store, alias: AliasView, asked: Asked, everything: HoneSettings) -> list[Side]:
    there = {
        one.id: one.name
        for one in await versions.get_versions(Project(store, alias.project_id))
        if one.alias_id == alias.id
    }
    live = there[alias.live_version_id or ""]  # an alias is made with version 0 live
    return resolved(asked.names, alias.name, live, frozenset(there.values()), everything.providers())
