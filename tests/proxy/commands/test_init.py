"""`hone init`: the file that it writes, what it says, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.doctor import discovery
from proxy.settings.loader import load_settings
from tests.proxy.hone_command import hone
from tests.recorder.models.model_folders import write_model

pytestmark = pytest.mark.usefixtures("bare")

SECRET = "sk-never-written"


@pytest.fixture(autouse=True)
def nothing_runs_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine of somebody else's machine, no model of its owner's, and one key."""
    monkeypatch.setattr(discovery.discover, "__defaults__", ({"OPENAI_API_KEY": SECRET}, ()))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


def test_the_file_loads_and_says_which_command_is_next(tmp_path: Path) -> None:
    code, out, _ = hone("init")
    assert code == 0
    assert out.splitlines()[-1] == "Next: hone doctor, then hone up"
    settings = load_settings(None, {}).settings
    assert settings.judge.model == "openai/gpt-5-mini"
    assert hone("config")[0] == 0
    assert SECRET not in out + (tmp_path / "hone.toml").read_text()


def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path: Path) -> None:
    mine = "[engine]\n"
    (tmp_path / "hone.toml").write_text(mine)
    code, _, err = hone("init")
    assert code == 2
    assert "--force" in err
    assert (tmp_path / "hone.toml").read_text() == mine
    assert hone("init", "--force")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["hone.toml"]
    assert (tmp_path / "hone.toml").read_text() != mine


@pytest.mark.parametrize("where", ["no/such/folder/hone.toml", "file/hone.toml", "folder"])
def test_a_file_that_cannot_be_written_is_told_with_the_way_out(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    code, _, err = hone("init", "--force", "--config", str(tmp_path / where))
    assert code == 2
    assert f"{tmp_path / where} cannot be written: " in err
    assert "--config" in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_program_is_told_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.toml"
    code, out, _ = hone("init", "--json", "--config", str(file), "--base", "org/model", "--alias", "my/agent")
    assert code == 0
    told = json.loads(out)
    assert told["file"] == str(file)
    assert told["settings"]["engine.base"] == "org/model"
    assert told["found"]["judge"] == "OPENAI_API_KEY"
    assert list(load_settings(file, {}).settings.aliases) == ["my/agent"]


def test_a_folder_is_named_so_that_the_file_may_lie_elsewhere(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "conf").mkdir()
    assert hone("init", "--base", "model", "--config", "conf/hone.toml")[0] == 0
    assert load_settings(tmp_path / "conf" / "hone.toml", {}).settings.engine.base == str(tmp_path / "model")


def test_a_name_that_no_agent_could_ask_for_is_refused() -> None:
    code, _, err = hone("init", "--alias", "two words")
    assert code == 2
    assert "two words" in err
