"""Which settings may be sent: no text, path or command among them."""

from __future__ import annotations

from pathlib import Path

from tests.trainer.trackers.scripted import SECRET
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings
from trainer.trackers.base import safe_settings


def test_texts_paths_and_commands_stay_here() -> None:
    settings = CampaignSettings(
        name=SECRET, agent=f"run --api-key {SECRET}", cwd=Path(SECRET), agent_env=[SECRET], success=SECRET,
        scenarios=Path(SECRET),
    )  # fmt: skip
    assert SECRET not in repr(safe_settings(settings, "campaign"))
    assert SECRET not in repr(safe_settings(TrainerSettings(base=SECRET, target=[SECRET]), "trainer"))


def test_numbers_switches_and_choices_are_sent() -> None:
    told = safe_settings(CampaignSettings(steps=7, on_agent_error="judge", replay=True, target=0.5), "campaign")
    expected = {"steps": 7, "on_agent_error": "judge", "replay": True, "target": 0.5}
    assert {f"campaign.{key}": value for key, value in expected.items()}.items() <= told.items()
    assert "campaign.plateau_steps" not in safe_settings(CampaignSettings(plateau_steps=None), "campaign")


def test_a_text_that_reads_like_a_choice_of_another_setting_stays_here() -> None:
    assert "campaign.name" not in safe_settings(CampaignSettings(name="judge"), "campaign")
