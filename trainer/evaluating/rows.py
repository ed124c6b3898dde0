"""An evaluation's row: begun, or found unfinished and gone on with by the same command.

Owns: when it is the same one: the versions that names mean now, the scenarios, how often they are attempted, what
decides an attempt and its worth. Refuses: holding it and marking it (`trainer.campaign.begin`), running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from recorder.groups.lookup import BY_FUNCTION
from recorder.registry.aliases import AliasView
from recorder.states import CampaignState
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import campaigns
from recorder.work.campaigns import EVALUATES, CampaignView, Scenario, Split
from trainer.campaign.begin import new_scenarios
from trainer.evaluating.asked import Asked, by_function
from trainer.progress import Progress, Said

PART: Final[Split] = "test"  # which part of a campaign's scenarios these count as: never trained on
# Why one is over: it came to its end, or its attempts say nothing of its versions.
COMPARED: Final = "compared"
SPOILT: Final = "spoilt"


async def begin_or_find(
    store: Store, alias: AliasView, asked: Asked, told: dict[str, Any], progress: Progress
) -> CampaignView:
    """The row of what is `told` (`trainer.evaluating.asked.told`), with its scenarios."""
    settings = {**asked.settings.model_dump(mode="json"), EVALUATES: told}
    if by_function(asked.settings):
        settings[BY_FUNCTION] = True
    unfinished = [] if asked.fresh else await campaigns.unfinished_evaluations(store, alias.id)
    row = next((one for one in unfinished if one.settings[EVALUATES] == told), None)
    if row is None:
        row = await campaigns.create(Project(store, alias.project_id), alias.id, f"eval:{asked.file.stem}", settings)
    else:
        await campaigns.set_settings(store, row.id, settings)
        progress.tell(Said(f"going on with the evaluation {row.id}, {row.state} until now"))
    await campaigns.add_scenarios(store, row.id, PART, new_scenarios(asked.tasks))  # a killed program may not have
    return row


async def tasks_of(store: Store, row: CampaignView) -> Sequence[Scenario]:
    """An evaluation's scenarios, in the file's order."""
    return await campaigns.list_scenarios(store, row.id, PART)


async def over(store: Store, row: CampaignView, reason: str) -> None:
    """End an evaluation for good: the same command begins another."""
    await campaigns.finish(store, row.id, CampaignState.FINISHED, reason)
