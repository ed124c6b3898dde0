"""Both settings files can be read, have the preset, and name files and functions that exist."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import examples.rlvr
from proxy.settings.loader import load_settings

FOLDER = Path(examples.rlvr.__file__).parent


@pytest.mark.parametrize("name", ["hone.toml", "gpu.toml"])
def test_the_settings_can_be_read_and_what_they_name_exists(name: str) -> None:
    settings = load_settings(FOLDER / name, {}).settings
    campaign = settings.campaign
    assert campaign.preset == "rlvr"
    assert [one.kind for one in settings.judge.rewards] == ["rubric"]
    assert all(
        path and path.is_file() for path in (campaign.scenarios, campaign.val_scenarios, campaign.test_scenarios)
    )
    for function in (campaign.agent, campaign.success):
        module, _, attribute = str(function).partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))
