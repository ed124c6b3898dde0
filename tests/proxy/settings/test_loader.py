"""Settings: one file, variables over it, flags over both; every mistake is named with its source."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.settings.loader import RENAMED_SETTINGS, load_settings
from proxy.settings.toml_writer import describe_setting
from tests.proxy.settings.written import write

pytestmark = pytest.mark.usefixtures("bare")


def test_defaults_work_without_any_file(tmp_path: Path) -> None:
    loaded = load_settings(None, {})
    assert loaded.file is None
    assert loaded.settings.proxy.port == 8700
    assert loaded.settings.data == tmp_path / ".hone"
    assert set(loaded.origin.values()) == {"default"}


def test_variables_override_the_file_and_flags_override_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "project = 'file'\n[proxy]\nport = 1\nhost = '127.0.0.2'\nstop_timeout_s = 1.5\n")
    monkeypatch.setenv("HONE_PROXY__PORT", "2")
    monkeypatch.setenv("HONE_PROXY__STOP_TIMEOUT_S", "2.5")
    loaded = load_settings(None, {"proxy.port": 3})
    proxy = loaded.settings.proxy
    assert (proxy.host, proxy.stop_timeout_s, proxy.port) == ("127.0.0.2", 2.5, 3)
    assert loaded.origin["project"] == "hone.toml"
    assert loaded.origin["proxy.host"] == "hone.toml"
    assert loaded.origin["proxy.stop_timeout_s"] == "env HONE_PROXY__STOP_TIMEOUT_S"
    assert loaded.origin["proxy.port"] == "flag"
    assert loaded.origin["proxy.max_body_bytes"] == "default"


def test_lists_and_tables_come_from_variables_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_ENGINE__URLS", '["http://a:1", "http://b:2/v1/"]')
    monkeypatch.setenv("HONE_ALIASES__HELPDESK__CANARY_SHARE", "0.25")
    settings = load_settings(None, {}).settings
    assert settings.engine.urls == ["http://a:1", "http://b:2"]
    assert settings.aliases["helpdesk"].canary_share == 0.25


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[proxy]\nprot = 1\n", ["hone.toml", "'proxy.prot'", "'proxy.port'"]),
        ("[prox]\nport = 1\n", ["hone.toml", "'prox'", "'proxy'"]),
        ("port = 1\n", ["'port'", "'proxy.port'"]),
        ("[aliases.helpdesk]\ncanary = 0.1\n", ["'aliases.helpdesk.canary'", "'aliases.helpdesk.canary_share'"]),
        ("[[judge.rewards]]\nkind = 'ruler'\nwieght = 1\n", ["'judge.rewards[0].wieght'", "weight"]),
        (
            "[[judge.recipes.x.rewards]]\nkind = 'ruler'\nlwo = 1\n",
            ["'judge.recipes.x.rewards[0].lwo'", "rewards.0.low"],
        ),
        ("[judge.recipes.x]\nrubrik = 'brief'\n", ["'judge.recipes.x.rubrik'", "'judge.recipes.x.rubric'"]),
        ("[engine]\nzzzzzzzz = 1\n", ["'engine.zzzzzzzz'", "hone config"]),
    ],
)
def test_an_unknown_key_names_file_key_and_nearest(tmp_path: Path, text: str, expected: list[str]) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {})
    for words in expected:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [(old.replace("*", "helpdesk"), new.replace("*", "helpdesk")) for old, new in RENAMED_SETTINGS.items()],
)
def test_a_renamed_key_is_an_error_that_names_todays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    section, _, key = old.rpartition(".")
    file = write(tmp_path, f"[{section}]\n{key} = 1\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {})
    assert str(caught.value) == f"hone.toml: {old!r} is now called {new!r}. Rename it."
    file.unlink()
    old_variable, new_variable = (f"HONE_{name.replace('.', '__').upper()}" for name in (old, new))
    monkeypatch.setenv(old_variable, "1")
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {})
    assert (
        str(caught.value) == f"env {old_variable}: {old!r} is now called {new!r} (variable {new_variable}). Rename it."
    )


@pytest.mark.parametrize("new", RENAMED_SETTINGS.values())
def test_what_a_renamed_key_points_to_is_a_setting(new: str) -> None:
    assert describe_setting(new.split("."))


def test_an_unknown_variable_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_JUGDE__MODEL", "m")
    with pytest.raises(ConfigError, match=r"env HONE_JUGDE.*'judge'"):
        load_settings(None, {})


def test_an_unknown_key_in_a_variable_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_PROXY__PROT", "1")
    with pytest.raises(ConfigError, match=r"env HONE_PROXY__PROT: unknown key 'proxy.prot'.*'proxy.port'"):
        load_settings(None, {})


def test_variables_of_agents_and_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HONE_MODEL", "HONE_TASK_ID", "HONE_TASK_INPUT", "HONE_DEBUG", "HONE_KNIFE"):
        monkeypatch.setenv(name, "x")
    assert set(load_settings(None, {}).origin.values()) == {"default"}


def test_a_wrong_value_names_source_key_and_value(tmp_path: Path) -> None:
    write(tmp_path, "[proxy]\nport = 'many'\n")
    with pytest.raises(ConfigError, match=r"hone.toml: proxy.port: .*integer.*'many'"):
        load_settings(None, {})


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path, "[proxy]\nport = 'many'\nprot = 1\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {})
    assert len(str(caught.value).splitlines()) == 2


def test_malformed_json_in_a_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_ENGINE__URLS", "http://a:1")
    with pytest.raises(ConfigError, match=r"env HONE_ENGINE__URLS: .*JSON"):
        load_settings(None, {})


@pytest.mark.parametrize("url", ["sesame:1", "http://me:sesame@h:1", "http://h:1/v1?token=sesame", "http://h#sesame"])
def test_an_engines_url_is_an_address_and_nothing_else(tmp_path: Path, url: str) -> None:
    write(tmp_path, f"[engine]\nurls = ['{url}']\n")
    with pytest.raises(ConfigError, match=r"engine\.urls: .*http://host:port") as refused:
        load_settings(None, {})
    assert "me:sesame" not in str(refused.value)
    assert "token=sesame" not in str(refused.value)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    write(tmp_path, "[proxy\n")
    with pytest.raises(ConfigError, match=r"hone\.toml cannot be read"):
        load_settings(None, {})


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"elsewhere\.toml"):
        load_settings(tmp_path / "elsewhere.toml", {})


def test_paths_in_the_file_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    (folder / "model").mkdir(parents=True)
    path = folder / "hone.toml"
    path.write_text("data = 'd'\n[engine]\nbase = 'model'\n[campaign]\ncwd = '.'\nscenarios = 'train.jsonl'\n")
    settings = load_settings(path, {}).settings
    assert settings.data == folder / "d"
    assert settings.engine.base == str(folder / "model")
    assert settings.campaign.scenarios == folder / "train.jsonl"
    assert settings.campaign.cwd == folder


def test_data_lies_beside_the_file_unless_a_flag_says_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "hone.toml"
    path.write_text("")
    assert load_settings(path, {}).settings.data == folder / ".hone"
    assert load_settings(path, {"data": Path("here")}).settings.data == tmp_path / "here"


def test_a_number_out_of_a_list_comes_from_a_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_ENGINE__MAX_LORA_RANK", "64")
    assert load_settings(None, {}).settings.engine.max_lora_rank == 64
    monkeypatch.setenv("HONE_ENGINE__MAX_LORA_RANK", "7")
    with pytest.raises(ConfigError, match="HONE_ENGINE__MAX_LORA_RANK"):
        load_settings(None, {})


def test_a_hub_id_is_no_path(tmp_path: Path) -> None:
    write(tmp_path, "[engine]\nbase = 'Qwen/Qwen3-0.6B'\n")
    settings = load_settings(None, {}).settings
    assert settings.engine.base == "Qwen/Qwen3-0.6B"
    assert list(settings.declared_aliases()) == ["Qwen3-0.6B"]


def test_an_alias_compares_as_the_trainer_does_unless_it_says_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "[trainer]\nbaseline = 'running'\n[aliases.a]\n[aliases.b]\nbaseline = 'group'\n")
    declared = load_settings(None, {}).settings.declared_aliases()
    assert {name: alias.baseline for name, alias in declared.items()} == {"a": "running", "b": "group"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[engine]\nbase = '~nobody-here/model'\n", "engine.base"),
        ("[engine]\nchat_template = '~nobody-here/t.jinja'\n", "engine.chat_template"),
        ("[aliases.helpdesk.gate]\nscenarios = '~nobody-here/s.jsonl'\n", "aliases.helpdesk.gate.scenarios"),
        ("data = '~nobody-here/data'\n", "data"),
        ("[judge]\nfolder = 'round'\n", "judge.folder"),
        ('[engine]\nbase = "./a\\u0000b"\n', "engine.base"),
        (f"[engine]\nbase = '{'x' * 300}'\n", "engine.base"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_of_its_setting(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "round").symlink_to("round")
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=rf"hone\.toml: {key}: .* (cannot be resolved|is not a path) \("):
        load_settings(None, {})


@pytest.mark.parametrize("section", ["engine", "judge", "campaign"])
@pytest.mark.parametrize("named", ["env/bin/python", "../here/env/bin/python", "{whole}/env/bin/python"])
def test_the_python_of_an_environment_stays_the_environments(tmp_path: Path, section: str, named: str) -> None:
    """It is a link to the one that the environment was made with, which has none of what is installed there."""
    here = tmp_path / "here"
    venv.create(here / "env", symlinks=True, with_pip=False)
    file = here / "hone.toml"
    file.write_text(f"[{section}]\npython = {json.dumps(named.format(whole=here))}\n")
    python = getattr(load_settings(file, {}).settings, section).python
    said = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert Path(said.stdout.strip()) == here / "env"


def test_a_data_folder_of_nobody_is_an_error_of_the_flag_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"flag: data: '~nobody-here' cannot be resolved"):
        load_settings(None, {"data": "~nobody-here"})


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("[alias.helpdesk]\npromote = 'gate'\n", "'aliases'"),
        ("[engine]\nbase_model = 'm'\n", "'engine.base'"),
        ("[trainers]\nrank = 8\n", "'trainer'"),
        ("[judge]\nmodel_name = 'm'\n", "'judge.model'"),
        ("[trainer]\nrank_size = 8\n", "'trainer.rank'"),
    ],
)
def test_a_sibling_that_begins_the_same_is_nearest(tmp_path: Path, text: str, nearest: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=f"Did you mean {nearest}\\?"):
        load_settings(None, {})


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("HONE_JUDGE_MODEL", "HONE_JUDGE__MODEL sets judge.model"),
        ("HONE_TRAINER_TOKEN_BUDGET", "HONE_TRAINER__TOKEN_BUDGET sets trainer.token_budget"),
        ("hone_engine_base", "HONE_ENGINE__BASE sets engine.base"),
        ("HONE_ALIASES_HELPDESK_PROMOTE", "HONE_ALIASES__…"),
    ],
)
def test_a_variable_with_one_underscore_is_a_note(monkeypatch: pytest.MonkeyPatch, variable: str, named: str) -> None:
    monkeypatch.setenv(variable, "1")
    loaded = load_settings(None, {})
    assert set(loaded.origin.values()) == {"default"}
    [note] = loaded.notes
    assert variable in note
    assert named in note


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HONE_PROXY_SERVICE_HOST", "10.0.0.1"),
        ("HONE_PROXY_SERVICE_PORT_HTTP", "8700"),
        ("HONE_PROXY_PORT", "tcp://10.0.0.1:8700"),
        ("HONE_PROXY_PORT_8700_TCP", "tcp://10.0.0.1:8700"),
        ("HONE_PROXY_PORT_8700_TCP_ADDR", "10.0.0.1"),
        ("HONE_PORT", "tcp://10.0.0.1:8700"),
        ("HONE__PROXY_PORT", "tcp://10.0.0.1:8700"),
        ("HONE_PROJECT_SERVICE_HOST", "10.0.0.1"),
    ],
)
def test_variables_of_kubernetes_are_ignored(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    loaded = load_settings(None, {})
    assert set(loaded.origin.values()) == {"default"}
    assert loaded.notes == ()


def test_a_misspelt_setting_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_PROJCT", "x")
    with pytest.raises(ConfigError, match="'project'"):
        load_settings(None, {})
