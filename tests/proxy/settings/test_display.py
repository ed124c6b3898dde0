"""What is shown of settings holds no secret, and children get the flags that we got."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.display import as_environment, display_value, list_leaves
from proxy.settings.loader import load_settings
from tests.proxy.settings.written import MODELS, write

pytestmark = pytest.mark.usefixtures("bare")


def test_flags_reach_child_processes_as_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"proxy.port": 9, "engine.urls": ["http://a:1"], "aliases": {"Qwen/Qwen3-4B": {"base_model": "q"}}}
    for name, value in as_environment(flags).items():
        monkeypatch.setenv(name, value)
    settings = load_settings(None, {}).settings
    assert settings.proxy.port == 9
    assert settings.engine.urls == ["http://a:1"]
    assert settings.aliases["Qwen/Qwen3-4B"].base_model == "q"


def test_secrets_are_masked_wherever_they_stand() -> None:
    settings = load_settings(
        None,
        {
            "engine.api_key": "very-secret",
            "judge.api_key": "very-secret",
            "engine.env": {"MY_TOKEN": "very-secret", "PLAIN": "shown"},
            "recorder.url": "postgresql+asyncpg://me:very-secret@db/hone?ssl=on&user=very-secret&p%61ssword=very-secret",
            "mcp": {"e": {"url": "https://host/mcp?page=2&apiKey=very-secret&token=very-secret"}},
        },
    ).settings
    printed = {key: display_value(key, value) for key, value in list_leaves(settings)}
    assert "very-secret" not in str(printed)
    assert printed["engine.env"] == {"MY_TOKEN": "********", "PLAIN": "shown"}
    assert (
        printed["recorder.url"] == "postgresql+asyncpg://me:********@db/hone?ssl=on&user=********&p%61ssword=********"
    )
    assert printed["mcp.e.url"] == "https://host/mcp?page=2&apiKey=********&token=********"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["--port", "80", "--api-key", "hush", "-Hush"], ["--port", "80", "--api-key", "********", "********"]),
        (
            ["--api_key=hush", "--hf-Token", "hush", "--seed", "1"],
            ["--api_key=********", "--hf-Token", "********", "--seed", "1"],
        ),
        (["-e", "MY_SECRET=hush", "--env=PASSWORD=hush"], ["-e", "MY_SECRET=********", "--env=PASSWORD=********"]),
        (["--config", '{"a": {"token": "hush"}}'], ["--config", '{"a": {"token": "********"}}']),
        (["-token", "hush"], ["-token", "********"]),
        (["--header", "Authorization: Bearer hush"], ["--header", "Authorization: ********"]),
        (["--header=x-api-key:hush"], ["--header=x-api-key:********"]),
        (["--url=https://me:hush@h/?a=b&token=hush"], ["--url=https://me:********@h/?a=b&token=********"]),
        (["--url=https://hush@h/mcp"], ["--url=https://********@h/mcp"]),
        (
            ["--tokenizer", "qwen", "--max-num-batched-tokens", "9"],
            ["--tokenizer", "qwen", "--max-num-batched-tokens", "9"],
        ),
        (["--require-token", "--port", "80"], ["--require-token", "--port", "80"]),
    ],
)
def test_secrets_among_the_arguments_of_a_command_are_masked(said: list[str], told: list[str]) -> None:
    assert display_value("engine.args", said) == told
    assert display_value("mcp.files.args", tuple(said)) == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("API_KEY=hush python  agent.py --seed 1", "API_KEY=******** python  agent.py --seed 1"),
        ("agent --password 'hush hush' --seed 1", "agent --password ******** --seed 1"),
        ("curl -H 'Authorization: Bearer hush' --get", "curl -H 'Authorization: ******** --get"),
        ("curl https://h/?token=hush\n-o x", "curl https://h/?token=********\n-o x"),
        ("The agent's key is: to don't guess.\n", "The agent's key is: to don't guess.\n"),
    ],
)
def test_secrets_in_a_shells_command_are_masked(said: str, told: str) -> None:
    assert display_value("campaign.agent", said) == told


@given(st.text())
def test_a_text_without_secrets_is_shown_as_it_is(text: str) -> None:
    plain = re.sub(r"(?i)key|token|secret|passw|authorization|://", "", text)
    assert display_value("judge.rubric", plain) == plain


def test_a_models_secrets_are_not_shown(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, MODELS), {}).settings
    text = str([display_value(key, value) for key, value in list_leaves(settings)])
    assert "reasoning_effort" in text
    assert "very-secret" not in text
    assert "also-secret" not in text


def test_mcp_servers_are_read_and_their_secrets_not_shown(tmp_path: Path) -> None:
    write(
        tmp_path,
        "[mcp.orders]\nurl = 'http://127.0.0.1:9/mcp'\ntoken = 'sesame'\nheaders = { x-key = 'hush-hush' }\n"
        "[mcp.files]\ncommand = 'files-server'\nargs = ['.']\nenv = { KEY = 'sesame' }\ncwd = 'data'\ndeny = ['rm*']\n",
    )
    settings = load_settings(None, {"mcp": {"more": {"url": "http://127.0.0.1:8/mcp"}}}).settings
    assert set(settings.mcp) == {"orders", "files", "more"}
    assert settings.mcp["files"].cwd == tmp_path / "data"
    told = str([display_value(key, value) for key, value in list_leaves(settings)])
    assert "sesame" not in told
    assert "hush-hush" not in told
