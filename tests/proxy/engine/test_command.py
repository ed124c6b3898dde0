"""The engine's command line: what exact tokens and swaps need, on a CPU and on a GPU."""

from __future__ import annotations

import shlex
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.engine import cpu_server
from proxy.engine.base import base_folder, require_models
from proxy.engine.command import dtype_of, engine_command, engine_key, engine_urls, require_free, served_fingerprint
from proxy.errors import ConfigError, PortInUse
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.registry.fingerprint import base_fingerprint
from tests.recorder.models.model_folders import write_config, write_model


def option(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_a_base_s_fingerprint_has_the_factors_that_the_engine_takes(tmp_path: Path) -> None:
    rope = {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 64}
    write_model(tmp_path)
    write_config(tmp_path, model_type="phi3", max_position_embeddings=512, **rope)

    def of(**changes: Any) -> str:
        return served_fingerprint(EngineSettings(base=str(tmp_path), dtype="float32", **changes), tmp_path)

    assert of() == of(max_model_len=64) == base_fingerprint(tmp_path, "float32")
    assert of(max_model_len=65) == of(args=["--max-model-len=512"]) == base_fingerprint(tmp_path, "float32", 512)
    assert of() != of(max_model_len=65)


def test_flags_that_exact_tokens_and_swaps_need() -> None:
    command = engine_command(
        EngineSettings(base="org/model", max_loras=3, max_lora_rank=16, tool_call_parser="hermes"),
        key="k",
        served_names=["helpdesk"],
        device="cuda",
    )
    argv = command.argv
    assert argv[1:3] == ("-m", "vllm.entrypoints.openai.api_server")
    assert option(argv, "--model") == "org/model"
    assert argv[argv.index("--served-model-name") + 1 :][:2] == ("model", "helpdesk")
    assert option(argv, "--host") == "127.0.0.1"
    assert option(argv, "--logprobs-mode") == "processed_logprobs"
    assert option(argv, "--generation-config") == "vllm"
    assert "--enable-prompt-tokens-details" in argv
    assert "--enable-lora" in argv
    assert option(argv, "--max-loras") == "3"
    assert int(option(argv, "--max-cpu-loras")) >= 3
    assert option(argv, "--max-lora-rank") == "16"
    assert option(argv, "--tool-call-parser") == "hermes"
    assert option(argv, "--dtype") == "bfloat16"
    assert "--kv-cache-memory-bytes" not in argv
    assert command.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert "HF_HUB_OFFLINE" not in command.env
    assert command.url == "http://127.0.0.1:8701"


def test_the_share_of_a_gpu_is_said_to_an_engine_on_one_and_to_no_other() -> None:
    half = EngineSettings(base="b", gpu_memory_utilization=0.5)
    assert option(engine_command(half, key=None, device="cuda").argv, "--gpu-memory-utilization") == "0.5"
    assert "--gpu-memory-utilization" not in engine_command(half, key=None, device="cpu").argv
    assert "--gpu-memory-utilization" not in engine_command(EngineSettings(base="b"), key=None, device="cuda").argv


@pytest.mark.parametrize("whole", [True, False])
def test_the_folder_of_an_adapter_is_no_base(tmp_path: Path, whole: bool) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base", "r": 8}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    if whole:
        (tmp_path / "config.json").write_text("{}")
    engine = EngineSettings(base=str(tmp_path))
    with pytest.raises(ConfigError, match=r"holds an adapter.*engine\.base.*some/base"):
        engine_command(engine, key=None, device="cpu")
    with pytest.raises(ConfigError, match="holds an adapter"):  # `hone serve`, beside an engine given by its URL
        require_models(HoneSettings(engine=EngineSettings(base=str(tmp_path), urls=["http://127.0.0.1:9"])))


def test_an_adapter_from_the_hub_is_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--some--adapter" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--some--adapter" / "refs").mkdir()
    (tmp_path / "models--some--adapter" / "refs" / "main").write_text("abc")
    (snapshot / "adapter_model.safetensors").write_bytes(b"")
    (snapshot / "adapter_config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="'some/adapter' holds an adapter"):
        engine_command(EngineSettings(base="some/adapter"), key=None, device="cpu")


def test_the_key_is_never_an_argument() -> None:
    command = engine_command(EngineSettings(base="b"), key="very-secret", device="cpu")
    assert not any("very-secret" in word for word in command.argv)
    assert command.env["VLLM_API_KEY"] == "very-secret"
    assert "very-secret" not in command.shown(Path("/d/engine.key"))


def test_a_cpu_gets_the_flags_of_a_quick_start(tmp_path: Path) -> None:
    command = engine_command(EngineSettings(base=str(write_model(tmp_path))), key=None, device="cpu")
    assert command.argv[1] == cpu_server.__file__  # by its path: the engine's Python need not have Hone
    assert option(command.argv, "--dtype") == "float32"
    assert option(command.argv, "--kv-cache-memory-bytes") == str(128 * 1024 * 1024)
    assert command.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert command.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert "--enforce-eager" in command.argv
    assert command.env["TORCH_COMPILE_DISABLE"] == "1"
    assert int(command.env["OMP_NUM_THREADS"]) >= 1
    assert int(command.env["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 60
    assert command.unset == {"VLLM_CPU_KVCACHE_SPACE"}
    assert command.env["HF_HUB_OFFLINE"] == "1"
    assert "VLLM_API_KEY" not in command.env


def test_own_arguments_and_variables_come_last() -> None:
    engine = EngineSettings(base="b", args=["--max-num-seqs", "7"], env={"OMP_NUM_THREADS": "9"}, tool_call_parser="")
    command = engine_command(engine, key=None, device="cpu")
    assert command.argv[-2:] == ("--max-num-seqs", "7")
    assert command.env["OMP_NUM_THREADS"] == "9"
    assert "--enable-auto-tool-choice" not in command.argv


def test_what_is_printed_is_the_command_itself(tmp_path: Path) -> None:
    command = engine_command(EngineSettings(base="a b", args=["--x", "it's"]), key=None, device="cpu")
    words = shlex.split(command.shown(None).replace("\\\n", ""))
    at = words.index(command.argv[0])
    assert tuple(words[at:]) == command.argv
    assert "VLLM_CPU_OMP_THREADS_BIND=nobind" in words[:at]
    assert words[words.index("-u") + 1] == "VLLM_CPU_KVCACHE_SPACE"
    shell = command.shown(None).replace(shlex.quote(command.argv[0]), "true", 1)
    subprocess.run(["sh", "-c", shell], check=True)


def test_the_key_is_random_kept_and_private(tmp_path: Path) -> None:
    engine = EngineSettings(base="b")
    key = engine_key(engine, tmp_path / "data")
    assert key is not None
    assert len(key) >= 32
    assert engine_key(engine, tmp_path / "data") == key
    assert engine_key(engine, tmp_path / "other") != key
    assert stat.S_IMODE((tmp_path / "data" / "engine.key").stat().st_mode) == 0o600


def test_given_engines_have_the_given_key_or_none(tmp_path: Path) -> None:
    urls = ["http://a:1"]
    assert engine_key(EngineSettings(urls=urls), tmp_path) is None
    assert engine_key(EngineSettings(urls=urls, api_key=SecretStr("k")), tmp_path) == "k"
    assert engine_urls(EngineSettings(urls=["http://a:1/v1/"])) == ["http://a:1"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_base_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"hone\.toml.*--engine"):
        engine_command(EngineSettings(), key=None)


def test_a_port_in_use_is_named_with_what_to_change() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port}.*engine\.port"):
            require_free("127.0.0.1", port, "engine.port")
    require_free("127.0.0.1", port, "engine.port")


def test_dtype_follows_the_device_unless_it_is_set() -> None:
    assert dtype_of(EngineSettings(device="cpu")) == "float32"
    assert dtype_of(EngineSettings(device="cuda")) == "bfloat16"
    assert dtype_of(EngineSettings(device="cuda", dtype="float16")) == "float16"


def test_the_base_folder_is_found_as_given_or_in_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert base_folder(EngineSettings(base=str(tmp_path))) == tmp_path
    assert base_folder(EngineSettings(base="org/model")) is None
    repository = tmp_path / "hub" / "models--org--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc\n")
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model-00002-of-00002.safetensors"):
        (snapshot / name).write_text("{}")
        assert base_folder(EngineSettings(base="org/model")) is None, "it is being fetched"
    (snapshot / "model-00001-of-00002.safetensors").write_text("{}")
    assert base_folder(EngineSettings(base="org/model")) == snapshot
