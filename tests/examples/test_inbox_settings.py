"""The mailbox example's settings files load, and what surrounds Hone is what they need."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from examples.inbox.gamed import CAMPAIGN, EXPLOITABLE, FIXED
from examples.inbox.run import CONFIG, EXAMPLE, SHORT_STEPS, compared_with, stood_in
from examples.running.command import ExampleRun
from proxy.settings.loader import load_settings

GPU = CONFIG.with_name("gpu.toml")


@pytest.mark.parametrize("config", [CONFIG, GPU, EXPLOITABLE, FIXED], ids=lambda path: path.name)
def test_every_settings_file_loads(config: Path) -> None:
    settings = load_settings(config, {}).settings
    assert settings.campaign.success == "examples.inbox.checks:solved"
    assert list(settings.aliases) == ["inbox"]
    providers = {model.name for model in settings.proxy.models}
    stand_ins = {"scripted-frontier"} if stood_in(config) else set()
    assert set(settings.campaign.baselines) <= providers | stand_ins


def test_the_stand_in_s_settings_are_hone_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in compared_with(8300).items():
        monkeypatch.setenv(name, value)
    [model] = load_settings(CONFIG, {}).settings.proxy.models
    assert model.name == "scripted-frontier"


def test_only_the_recipe_differs_between_the_judge_that_is_gamed_and_the_mended_one() -> None:
    def read(path: Path) -> dict[str, Any]:
        return tomllib.loads(path.read_text())

    gamed, mended = read(EXPLOITABLE), read(FIXED)
    assert gamed.pop("judge") == {"rewards": [{"kind": "ruler"}]}
    rule = {"kind": "rule", "rule": "required_tools", "value": ["search", "read"], "effect": "veto"}
    assert mended.pop("judge") == {"rewards": [{"kind": "ruler"}, rule]}
    assert gamed == mended
    assert gamed["campaign"]["name"] == CAMPAIGN


@pytest.mark.slow
def test_what_surrounds_hone_is_started_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HONE_JUDGE__MODEL", raising=False)
    with EXAMPLE.surroundings(ExampleRun(tmp_path, 7, short=True)) as found:
        assert found["HONE_CAMPAIGN__STEPS"] == str(SHORT_STEPS)
        assert json.loads(found["HONE_PROXY__MODELS"])[0]["name"] == "scripted-frontier"
        assert found["HONE_JUDGE__MODEL"] == "openai/scripted-inbox-judge"
        assert len(Path(found["HONE_CAMPAIGN__TEST_SCENARIOS"]).read_text().splitlines()) == 100
    with EXAMPLE.surroundings(ExampleRun(tmp_path / "gpu", 7, short=False, config=GPU)) as found:
        assert "HONE_PROXY__MODELS" not in found
        assert "HONE_CAMPAIGN__STEPS" not in found
