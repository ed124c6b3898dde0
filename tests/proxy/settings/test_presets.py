"""Presets: defaults below every other source, each an ordinary setting, and told as what they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from proxy.cli import cli
from proxy.errors import ConfigError
from proxy.settings.display import list_leaves
from proxy.settings.loader import PRESETS, load_settings
from recorder.views.campaigns.events import CampaignEnded
from trainer.campaign_settings import CampaignSettings

PAGE = Path(__file__).parents[3] / "docs" / "tasks.md"
ROW = re.compile(r"^\| .* \| `([a-z_]+\.[a-z_.]+)`[^|]* \| (?!yours)`?(.+?)`? \|$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_in_force_where_nothing_else_is_said_and_says_so(name: str) -> None:
    loaded = load_settings(None, {"campaign.preset": name})
    values = {key: value for key, value in list_leaves(loaded.settings) if loaded.origin[key] == f"preset {name}"}
    rewards = values.pop("judge.rewards")
    assert {**values, "judge.rewards": [{"kind": one.kind} for one in rewards]} == PRESETS[name]


def test_every_other_source_wins_over_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    file = '[campaign]\npreset = "rlvr"\ngroup_size = 4\n[judge]\nmodel = "m"\n[[judge.rewards]]\nkind = "ruler"\n'
    Path("hone.toml").write_text(file)
    monkeypatch.setenv("HONE_TRAINER__RANK", "16")
    loaded = load_settings(None, {"campaign.seed": 7})
    settings = loaded.settings
    assert (settings.campaign.group_size, settings.trainer.rank, settings.campaign.seed) == (4, 16, 7)
    assert [reward.kind for reward in settings.judge.rewards] == ["ruler"]
    assert loaded.origin["trainer.rank"] == "env HONE_TRAINER__RANK"
    assert (settings.trainer.lr, loaded.origin["trainer.lr"]) == (4e-5, "preset rlvr")


def test_without_a_preset_nothing_changes() -> None:
    loaded = load_settings(None, {})
    assert set(loaded.origin.values()) == {"default"}


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"flag: campaign\.preset: Input should be 'rlvr'"):
        load_settings(None, {"campaign.preset": "grpo"})


def test_the_setting_knows_the_presets() -> None:
    (known, _) = get_args(CampaignSettings.model_fields["preset"].annotation)
    assert set(get_args(known)) == PRESETS.keys()


def test_the_page_has_the_values_in_force() -> None:
    told = dict(ROW.findall(PAGE.read_text("utf-8")))
    assert told == {key: json.dumps(value) for key, value in PRESETS["rlvr"].items()}


def test_config_shows_what_came_from_a_preset() -> None:
    shown = CliRunner().invoke(cli, ["config", "--preset", "rlvr"]).output
    assert re.search(r"^trainer\.rank +32 +<- preset rlvr$", shown, re.MULTILINE)


def test_config_shows_what_came_from_a_recipe_and_json_can_be_read() -> None:
    Path("hone.toml").write_text('[trainer]\nrecipe = "dapo"\nclip_low = 0.1\n')
    shown = CliRunner().invoke(cli, ["config", "trainer"]).output
    for key, value, source in (
        ("normaliser", '"token"', "recipe dapo"),
        ("clip_low", "0.1", "hone.toml"),
        ("importance_cap", '"inf"', "recipe dapo"),
    ):
        assert re.search(rf"^trainer\.{key} +{re.escape(value)} +<- {source}", shown, re.MULTILINE), key
    printed = json.loads(CliRunner().invoke(cli, ["config", "trainer", "--json"]).output, parse_constant=pytest.fail)
    assert printed["settings"]["trainer.importance_cap"]["value"] == "inf"


TABLE = '[{"prompt": "x", "rubric - 1. criterion": "y"}]'
CODED = '{"id": "1", "input": "x", "rubric": [{"text": "y", "check": {"rule": "regex", "value": "y"}}]}'


@pytest.mark.parametrize(
    ("tasks", "base", "said"),
    [
        (TABLE, False, "the preset 'rlvr' chooses no base model: set engine.base"),
        (CODED, False, "the preset 'rlvr' chooses no base model: set engine.base"),
        (TABLE, True, "criterion '1' of the scenario 'task-1' needs a judge model"),
        (CODED, True, ""),
    ],
)
def test_training_by_a_preset_asks_for_a_base_and_for_a_judge_where_a_criterion_needs_one(
    tasks: str, base: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begun(*_: object) -> CampaignEnded:
        return CampaignEnded("tasks", "target", "", 1, "helpdesk@1", 1.0)

    monkeypatch.setattr("trainer.runtime.train.train", begun)
    Path("tasks.json").write_text(tasks)
    if base:
        monkeypatch.setenv("HONE_ENGINE__BASE", "org/base")
    done = CliRunner().invoke(cli, ["train", "--preset", "rlvr", "--scenarios", "tasks.json"])
    assert done.exit_code == (2 if said else 0)
    assert said in done.output
