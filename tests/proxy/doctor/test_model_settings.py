"""What a base model's files say about the engine's settings: as `hone init` writes them and `hone doctor` compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.doctor.discovery import CPU_CACHE_BYTES, Discovery, first_settings
from proxy.doctor.model_settings import check_model, fit_context
from proxy.engine.base import refuse_base
from proxy.engine.command import engine_command
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.models.on_disk import read_model
from recorder.models.shipped_configs import shipped_names
from recorder.processes import python_probe
from tests.recorder.models.model_folders import write_config, write_model
from tests.recorder.models.test_parsers import HERMES, LLAMA, TEMPLATE

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/model/config.json"))
NOWHERE = Discovery(engine=None, model=None, device="cpu", gpus=(), judge_key=None)

pytestmark = pytest.mark.usefixtures("bare")


def chosen(base: str, found: Discovery = NOWHERE) -> dict[str, object]:
    lines = first_settings(found, "agent", base, read_model(base))
    return {line.path[-1]: line.value for line in lines if not line.off}


def checked(**engine: object) -> list[Finding]:
    return check_model(HoneSettings(aliases={"a": AliasSettings()}, engine=EngineSettings.model_validate(engine)))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.parent.name)
def test_the_models_of_the_examples_get_settings_that_their_engine_takes(folder: Path) -> None:
    settings = chosen(str(folder))
    model = read_model(str(folder))
    assert model is not None
    assert settings["max_model_len"] == model.context_length
    assert settings["tool_call_parser"] == "hermes"
    assert "reasoning_parser" not in settings
    engine = EngineSettings.model_validate({key: value for key, value in settings.items() if key != "promote"})
    assert refuse_base(engine) is None
    command = engine_command(engine, key=None, device="cpu")
    assert command.argv[command.argv.index("--max-model-len") + 1] == str(model.context_length)


@pytest.mark.parametrize("name", shipped_names())
@pytest.mark.parametrize(
    ("device", "gpus"), [("cpu", ()), ("cuda", (24.0,)), ("cuda", (80.0,)), ("cuda", (80.0, 80.0))]
)
def test_no_context_is_longer_than_the_model_or_its_cache(name: str, device: str, gpus: tuple[float, ...]) -> None:
    found = Discovery(None, None, "cuda" if device == "cuda" else "cpu", gpus, None)
    model = read_model(name)
    assert model is not None
    assert model.context_length is not None
    length = chosen(name, found)["max_model_len"]
    assert isinstance(length, int)
    assert 1024 <= length <= min(32768, model.context_length)
    if device == "cpu":
        assert length <= 4096
        assert (model.kv_cache_bytes(length, element_bytes=4) or 0) <= CPU_CACHE_BYTES


@pytest.mark.parametrize(
    ("base", "tools", "thinking"),
    [
        ("Qwen/Qwen3-8B", "hermes", "qwen3"),
        ("Qwen/Qwen2.5-1.5B-Instruct", "hermes", None),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json", None),
        ("openai/gpt-oss-20b", "openai", "openai_gptoss"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", None),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "", None),
        ("org/nobody-knows", "auto", None),
    ],
)
def test_parsers_of_models_that_are_not_on_this_disk(base: str, tools: str, thinking: str | None) -> None:
    settings = chosen(base)
    assert settings["tool_call_parser"] == tools
    assert settings.get("reasoning_parser") == thinking


def test_a_parser_that_the_installed_vllm_lacks_is_left_out_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_probe, "list_parsers", lambda: {"engine.tool_call_parser": ["hermes"]})
    lines = first_settings(NOWHERE, "agent", "openai/gpt-oss-20b", read_model("openai/gpt-oss-20b"))
    line = next(one for one in lines if one.path[-1] == "tool_call_parser")
    assert line.value == ""
    assert "'openai'" in line.found


def test_a_context_is_halved_until_its_cache_fits(tmp_path: Path) -> None:
    model = read_model(str(write_model(tmp_path)))
    assert model is not None
    each = model.kv_cache_bytes(1, element_bytes=4)
    assert each is not None
    assert fit_context(model, each * 2048, 4, 4096) == 2048
    assert fit_context(model, each * 2047, 4, 4096) == 1024
    assert fit_context(model, -1, 4, 4096) == 2048
    assert fit_context(model, each * 9999, 4, 1500) == 1500


def test_a_parser_that_does_not_read_what_the_template_writes_is_told(tmp_path: Path) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_text(TEMPLATE.replace("CALL", LLAMA))
    write_config(tmp_path, model_type="llama", architectures=["LlamaForCausalLM"])
    [finding] = checked(base=str(tmp_path), tool_call_parser="hermes")
    assert finding.verdict is FindingLevel.NOTE
    assert "engine.tool_call_parser is hermes" in finding.found
    assert finding.todo == 'Set engine.tool_call_parser = "llama3_json".'
    assert checked(base=str(tmp_path), tool_call_parser="llama3_json")[0].verdict is FindingLevel.FINE
    [finding] = checked(
        base=str(tmp_path), tool_call_parser="hermes", chat_template="/other.jinja", reasoning_parser=""
    )
    assert finding.verdict is FindingLevel.FINE


@pytest.mark.parametrize("parser", ["hermes", "qwen3_json"])
def test_two_names_of_one_parser_are_the_same(parser: str, tmp_path: Path) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_text(TEMPLATE.replace("CALL", HERMES))
    [finding] = checked(base=str(tmp_path), tool_call_parser=parser)
    assert finding.verdict is FindingLevel.FINE
    assert "2048 tokens" in finding.found


def test_a_family_that_vllm_serves_and_hone_does_not_know_is_a_note(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_config(tmp_path, model_type="olmo2", architectures=["Olmo2ForCausalLM"])
    *parsers, finding = checked(base=str(tmp_path))
    assert finding.verdict is FindingLevel.NOTE
    assert "family 'olmo2', which Hone does not know" in finding.found
    assert [one.found for one in parsers] == [
        f"engine.{kind}_parser is auto, and the base '{tmp_path}' gets none: it has no chat template."
        for kind in ("tool_call", "reasoning")
    ]
    assert len(checked(base=str(tmp_path), tool_call_parser="", reasoning_parser="")) == 1


@pytest.mark.parametrize(
    ("engine", "stops"),
    [({}, True), ({"python": "/other/python"}, False), ({"urls": ["http://127.0.0.1:9"]}, False)],
)
def test_a_family_that_nobody_serves_stops_everything(
    engine: dict[str, object], stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_probe, "serves", lambda _architecture, _family: False)
    write_model(tmp_path)
    write_config(tmp_path, model_type="frob", architectures=["FrobForCausalLM"])
    assert any(finding.stops for finding in checked(base=str(tmp_path), **engine)) is stops


def test_code_of_the_model_itself_may_be_served(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_config(tmp_path, model_type="frob", architectures=["Frob"], auto_map={"AutoModel": "modeling.Frob"})
    assert not any(finding.stops for finding in checked(base=str(tmp_path)))


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"max_model_len": 4096}, "engine.max_model_len is 4096"),
        ({"max_model_len": 2048}, None),
        ({}, None),
        ({"args": ["--max-model-len", "4096"]}, "--max-model-len in engine.args is 4096"),
        ({"args": ["--max-model-len=4096"], "max_model_len": 1024}, "--max-model-len in engine.args is 4096"),
        ({"max_model_len": 4096, "args": ["--max-model-len", "1024"]}, None),
        ({"max_model_len": 4096, "args": ["--hf-overrides", "{}"]}, None),
        ({"max_model_len": 4096, "env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}, None),
        ({"max_model_len": 4096, "urls": ["http://127.0.0.1:9"]}, None),
    ],
)
def test_a_context_beyond_the_models_is_refused(more: dict[str, object], refused: str | None, tmp_path: Path) -> None:
    refusal = refuse_base(EngineSettings.model_validate({"base": str(write_model(tmp_path)), **more}))
    if refused is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.found.startswith(refused)
        assert "2048 tokens" in refusal.found


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ({}, True),
        ({"max_model_len": 1025}, True),
        ({"args": ["--max-model-len", "1025"]}, True),
        ({"max_model_len": 1024}, False),
        ({"urls": ["http://127.0.0.1:9"]}, False),
    ],
)
def test_a_context_that_engines_compute_differently_is_refused(
    more: dict[str, object], is_refused: bool, tmp_path: Path
) -> None:
    """Ministral 3. Of an engine by URL the context is not known here: the trainer refuses it."""
    rope = {"rope_type": "yarn", "original_max_position_embeddings": 1024, "llama_4_scaling_beta": 0.1}
    write_config(write_model(tmp_path), rope_parameters=rope)
    refusal = refuse_base(EngineSettings.model_validate({"base": str(tmp_path), **more}))
    assert (refusal is not None) is is_refused
    if refusal is not None:
        assert "scales queries beyond 1024 tokens" in refusal.found
        assert refusal.todo == "Set engine.max_model_len to 1024 or less."


def test_a_context_of_a_model_that_is_not_on_this_disk_is_known_too() -> None:
    refusal = refuse_base(EngineSettings(base="Qwen/Qwen3-8B", max_model_len=65536))
    assert refusal is not None
    assert "40960" in refusal.found


@pytest.mark.parametrize(
    ("base", "more", "is_refused"),
    [
        ("Qwen/Qwen3-30B-A3B", {"device": "cpu"}, True),
        ("openai/gpt-oss-20b", {"device": "cpu", "urls": ["http://127.0.0.1:9"]}, True),
        ("Qwen/Qwen3-30B-A3B", {"device": "cuda"}, False),
        ("Qwen/Qwen3-30B-A3B", {"urls": ["http://127.0.0.1:9"]}, False),
        ("Qwen/Qwen3-8B", {"device": "cpu"}, False),
    ],
)
def test_a_mixture_of_experts_on_a_cpu_is_refused_with_what_works(
    base: str, more: dict[str, object], is_refused: bool
) -> None:
    refusal = refuse_base(EngineSettings.model_validate({"base": base, **more}))
    assert (refusal is not None) == is_refused
    if refusal is not None:
        assert f"{refusal.found} {refusal.todo}" == (
            f"the base {base!r} is a mixture of experts, and vLLM cannot serve one with LoRA on a CPU. Use an engine "
            "on a GPU (engine.device, engine.urls), or a dense base of the same family."
        )
