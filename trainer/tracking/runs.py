"""What a tracker's run is of: a campaign, or an alias that learns from live traffic.

Owns: its id, name and the settings sent of it. Refuses: opening it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from recorder.registry.aliases import AliasView
from recorder.work.campaigns import CampaignView
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings
from trainer.tracking.base import Run
from trainer.tracking.safe import safe

FOLDER: Final = "tracking"  # in the data folder


def of_campaign(campaign: CampaignView, settings: CampaignSettings, trainer: TrainerSettings, data: Path) -> Run:
    """A campaign's run, from its beginning to its end, over all processes that go on with it."""
    told = safe(settings, "campaign") | safe(trainer, "trainer")
    return Run(campaign.id, campaign.name, str((data / FOLDER).absolute()), told)


def of_alias(alias: AliasView, trainer: TrainerSettings, data: Path) -> Run:
    """The run of all that `hone learn` ever teaches an alias."""
    return Run(alias.id, alias.name, str((data / FOLDER).absolute()), safe(trainer, "trainer"))
