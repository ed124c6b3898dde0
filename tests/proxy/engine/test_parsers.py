"""The parsers of an engine: a name of the settings, none, or what fits the base."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.engine.command import engine_command
from proxy.engine.parsers import engine_parsers
from proxy.settings.sections import EngineSettings
from recorder.models.engine_parsers import choose_engine_parsers
from recorder.processes import python_probe
from tests.recorder.models.model_folders import write_config, write_model
from tests.recorder.models.test_parsers import HERMES, LLAMA, TEMPLATE

HAS = {"engine.tool_call_parser": ["hermes", "llama3_json", "mine"], "engine.reasoning_parser": ["qwen3"]}


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A vLLM with these parsers, and an empty cache of the hub."""
    monkeypatch.setattr(python_probe, "list_parsers", lambda: HAS)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))


def flags(**engine: object) -> dict[str, str]:
    argv = engine_command(EngineSettings.model_validate(engine), key=None, device="cpu").argv
    return {name: argv[at + 1] for at, name in enumerate(argv) if name.endswith("-parser")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"--tool-call-parser": "hermes", "--reasoning-parser": "qwen3"}),
        ({"tool_call_parser": "auto", "reasoning_parser": ""}, {"--tool-call-parser": "hermes"}),
        ({"tool_call_parser": ""}, {"--reasoning-parser": "qwen3"}),
        ({"tool_call_parser": "mine"}, {"--tool-call-parser": "mine", "--reasoning-parser": "qwen3"}),
        ({"tool_call_parser": "", "reasoning_parser": ""}, {}),
    ],
)
def test_the_flags_of_a_base_that_hone_knows(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert flags(base="Qwen/Qwen3-8B", **settings) == expected


def test_the_template_of_a_folder_decides_and_one_of_the_settings_before_it(tmp_path: Path) -> None:
    base = write_model(tmp_path / "base")
    write_config(base, model_type="llama", architectures=["LlamaForCausalLM"])
    (base / "chat_template.jinja").write_text(TEMPLATE.replace("CALL", LLAMA))
    other = tmp_path / "other.jinja"
    other.write_text(TEMPLATE.replace("CALL", HERMES))
    assert flags(base=str(base)) == {"--tool-call-parser": "llama3_json"}
    assert flags(base=str(base), chat_template=str(other)) == {"--tool-call-parser": "hermes"}


def test_an_unknown_family_and_a_base_that_is_not_here_get_none_with_why(tmp_path: Path) -> None:
    unknown = write_config(tmp_path / "frob", model_type="frob", architectures=["FrobForCausalLM"])
    assert flags(base="org/nobody-knows") == {}
    found = engine_parsers(EngineSettings(base="org/nobody-knows"))
    assert found.tools.reason == "org/nobody-knows is not on this disk, so what its chat template writes is not known."
    assert engine_parsers(EngineSettings(base=str(unknown))).names == (None, None)


def test_what_the_installed_vllm_lacks_is_left_out_and_another_ones_is_not_known() -> None:
    found = engine_parsers(EngineSettings(base="openai/gpt-oss-20b"))
    assert found.names == (None, None)
    assert "'openai', which the installed vLLM does not have" in found.tools.reason
    other = EngineSettings(base="openai/gpt-oss-20b", urls=["http://127.0.0.1:9"])
    assert engine_parsers(other).names == ("openai", "openai_gptoss")


def test_the_trainer_chooses_as_the_engine() -> None:
    engine = EngineSettings(base="Qwen/Qwen3-8B")
    chosen = choose_engine_parsers(engine.base, engine.tool_call_parser, engine.reasoning_parser)
    assert chosen.names == engine_parsers(engine).names
    assert choose_engine_parsers(None, "auto", "auto").names == (None, None)
    assert choose_engine_parsers(None, "hermes", None).names == ("hermes", None)
