"""Who judges an example's run: a model that a variable or the settings file names, else a stand-in that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.inbox.run import CONFIG, EXAMPLE
from examples.mcp_rl.run import FOLDER
from examples.mcp_rl.world import world
from examples.running.campaign import CampaignFailed
from examples.running.command import ExampleRun
from examples.running.judges import judging, named, scripted
from proxy.settings.loader import load_settings


@pytest.fixture(autouse=True)
def nobody_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HONE_JUDGE__MODEL", raising=False)


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """The inbox's settings with one more: a judge."""
    file = tmp_path / "real.toml"
    file.write_text(CONFIG.read_text() + '\n[judge]\nmodel = "openai/gpt-5-mini"\n')
    return file


def test_a_judge_is_named_by_one_setting_wherever_hone_reads_it(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(CONFIG) == ""
    assert named(real) == "openai/gpt-5-mini"
    monkeypatch.setenv("HONE_JUDGE__MODEL", "anthropic/another")
    assert named(CONFIG) == named(real) == "anthropic/another"


@pytest.mark.slow  # starts programs
def test_a_named_judge_has_no_stand_in_in_its_place(
    real: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EXAMPLE.surroundings(ExampleRun(tmp_path, 7, short=True, config=real)) as found:
        assert not [name for name in found if "JUDGE" in name]
    assert "Judge: openai/gpt-5-mini" in capsys.readouterr().out


@pytest.mark.slow  # starts programs
def test_a_stand_in_is_told_and_its_settings_are_hone_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with judging(CONFIG, tmp_path, "examples.rlvr.scripted_judge", "scripted-rubric-judge") as found:
        assert "a scripted stand-in (examples.rlvr.scripted_judge)" in capsys.readouterr().out
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        judge = load_settings(CONFIG, {}).settings.judge
    assert judge.model == "openai/scripted-rubric-judge"
    assert found == scripted("scripted-rubric-judge", int(str(judge.api_base).rpartition(":")[2].partition("/")[0]))


def test_a_settings_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CampaignFailed, match=r"missing\.toml"):
        named(tmp_path / "missing.toml")


@pytest.mark.slow  # starts programs
@pytest.mark.parametrize("model", ["", "openai/gpt-5-mini"])
def test_what_is_right_is_known_of_the_scripted_generator_s_tasks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """A real model asks in words of its own, which the check beside the campaign cannot read."""
    monkeypatch.setenv("HONE_JUDGE__MODEL", model)
    with world(tmp_path, 7, None, FOLDER / "hone.toml") as found:
        assert bool(found.items) == bool(found.generator) == (model == "")
        assert found.database is not None
