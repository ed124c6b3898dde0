"""The settings of both campaigns, as `hone train` reads them, and what surrounds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.running.command import ExampleRun
from examples.twenty48.agent import run
from examples.twenty48.checks import reached, reward
from examples.twenty48.run import SHORT_STEPS, SHORT_TEST, TWENTY48
from examples.twenty48.scenarios import LEARN, TEST
from proxy.settings.loader import load_settings


@pytest.mark.parametrize("file", ["hone.toml", "gpu.toml"])
def test_no_model_judges_and_what_is_named_is_there(file: str) -> None:
    settings = load_settings(TWENTY48.folder / file, {}).settings
    [part] = settings.judge.recipes[settings.campaign.judge_recipe or ""].rewards or []
    named = {settings.campaign.agent, settings.campaign.success, part.function}
    assert named == {f"{it.__module__}:{it.__name__}" for it in (run, reached, reward)}
    assert settings.judge.model == ""
    assert settings.campaign.group_size == 18


def test_the_scenarios_are_enough_for_all_steps_and_the_test_part_for_intervals() -> None:
    campaign = load_settings(TWENTY48.folder / "hone.toml", {}).settings.campaign
    assert campaign.steps * campaign.scenarios_per_step <= LEARN
    assert TEST >= 200


@pytest.mark.parametrize("short", [False, True])
def test_the_boards_are_written_and_named_to_hone(tmp_path: Path, short: bool) -> None:
    with TWENTY48.surroundings(ExampleRun(tmp_path, 7, short)) as variables:
        counts = {
            name: len(Path(value).read_text().splitlines()) for name, value in variables.items() if "SCEN" in name
        }
    assert counts["HONE_CAMPAIGN__TEST_SCENARIOS"] == (SHORT_TEST if short else TEST)
    assert counts["HONE_CAMPAIGN__SCENARIOS"] == LEARN
    assert variables.get("HONE_CAMPAIGN__STEPS") == (str(SHORT_STEPS) if short else None)
