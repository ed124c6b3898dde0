"""The long run's settings: those that keep steps small, and one campaign a phase that does not go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.rlvr.long_run.phases import plan_phases, write_prompts
from examples.rlvr.long_run.run import CONFIG, phase_environment
from proxy.settings.loader import load_settings


def test_no_phase_ends_early_or_serves_an_earlier_version() -> None:
    settings = load_settings(CONFIG, {}).settings
    campaign = settings.campaign
    assert campaign.serve == "last"
    assert (campaign.plateau_steps or 0) > plan_phases()[-1].last
    assert campaign.health["converged"].then == "off"
    assert campaign.health["reward_hacking"].then == "note"
    assert campaign.health["reward_fall"].then == "note"


def test_steps_are_small_and_a_drift_set_is_measured() -> None:
    trainer = load_settings(CONFIG, {}).settings.trainer
    assert (trainer.warmup_steps, trainer.min_spread, trainer.grad_clip_recent, trainer.mask_ratio) == (5, 0.05, 2, 1.2)
    assert trainer.drift_trajectories == 32
    assert trainer.last_rate > 0
    assert trainer.schedule_end is None


def test_a_phase_s_variables_are_settings_that_hone_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = write_prompts(tmp_path, 7, 4, 2)
    phase = plan_phases(40, 5)[2]
    for name, value in phase_environment(phase, 5, prompts).items():
        monkeypatch.setenv(name, value)
    settings = load_settings(CONFIG, {}).settings
    assert settings.campaign.name == phase.name
    assert settings.campaign.scenarios == prompts.learn["things"]
    assert settings.campaign.val_scenarios == prompts.held_out
    assert (settings.campaign.steps, settings.campaign.val_every, settings.trainer.schedule_steps) == (10, 5, 10)
