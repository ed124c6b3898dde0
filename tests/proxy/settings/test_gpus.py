"""Settings of GPUs: which of them engine and trainer use, and who may pause an engine that shares one."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.engine.command import engine_command
from proxy.errors import ConfigError
from proxy.settings.gpus import visible_gpus
from proxy.settings.loader import load_settings
from proxy.settings.sections import EngineSettings


def settings_error(**flags: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {name.replace("__", "."): value for name, value in flags.items()})
    return str(caught.value)


@pytest.mark.parametrize("share", ["cache", "sleep"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("engine.urls", ["http://10.0.0.5:8000"]),
        ("engine.urls", ["http://127.0.0.1:8000", "http://engine:8000"]),
        ("engine.host", "0.0.0.0"),
        ("engine.args", ["--host", "0.0.0.0"]),
        ("engine.args", ["--host=::"]),
    ],
)
def test_an_engine_that_others_reach_is_never_one_that_sleeps(share: str, setting: str, value: Any) -> None:
    load_settings(None, {setting: value})
    with pytest.raises(ConfigError, match="is for an engine on this machine that listens on loopback"):
        load_settings(None, {setting: value, "engine.share": share})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"])
def test_an_engine_on_loopback_may_sleep(url: str) -> None:
    assert load_settings(None, {"engine.urls": [url], "engine.share": "sleep"}).settings.engine.share == "sleep"


def test_gpus_overlap_only_where_the_engine_pauses() -> None:
    overlapping = {"engine__gpus": [0, 1], "trainer__gpus": [1]}
    assert 'GPU 1 is in engine.gpus and in trainer.gpus, and engine.share is "split"' in settings_error(**overlapping)
    flags = {"engine.gpus": [0, 1], "trainer.gpus": [1]}
    assert load_settings(None, {**flags, "engine.share": "cache"}).settings.trainer.gpus == [1]
    apart = {"engine__gpus": [0], "trainer__gpus": [1], "engine__share": "sleep"}
    assert "have no GPU in common" in settings_error(**apart)
    assert load_settings(None, {"engine.gpus": [0], "trainer.gpus": [1]}).settings.engine.gpus == [0]


def test_a_gpu_is_named_once_and_in_one_place() -> None:
    assert "GPU 1 is named twice" in settings_error(engine__gpus=[1, 1])
    assert "GPU -1 is no number" in settings_error(trainer__gpus=[-1])
    both = {"engine__gpus": [1], "engine__env": {"CUDA_VISIBLE_DEVICES": "0"}}
    assert "both name the engine's GPUs" in settings_error(**both)
    assert "for an engine that Hone starts" in settings_error(engine__gpus=[1], engine__urls=["http://127.0.0.1:1"])


def test_a_program_sees_its_gpus_alone_in_the_order_of_the_driver() -> None:
    assert visible_gpus([2, 0]) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"}
    assert visible_gpus([]) == {}


def test_the_engine_gets_its_gpus_and_computes_one_model_on_them() -> None:
    def started(**changes: Any) -> Any:
        return engine_command(EngineSettings(base="org/model", **changes), key=None, device="cuda")

    two = started(gpus=[2, 3])
    assert two.env["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert two.argv[two.argv.index("--tensor-parallel-size") + 1] == "2"
    assert "--tensor-parallel-size" not in started(gpus=[3]).argv
    assert "--tensor-parallel-size" not in started(gpus=[2, 3], args=["--data-parallel-size=2"]).argv
    assert "CUDA_VISIBLE_DEVICES" not in started().env


@pytest.mark.parametrize("share", ["split", "cache", "sleep"])
def test_the_routes_for_sleeping_exist_only_where_the_engine_pauses(share: Any) -> None:
    def started(device: Any) -> Any:
        return engine_command(EngineSettings(base="org/model", share=share), key=None, device=device)

    assert ("VLLM_SERVER_DEV_MODE" in started("cuda").env) is (share != "split")
    assert ("--enable-sleep-mode" in started("cuda").argv) is (share != "split")
    assert ("VLLM_SERVER_DEV_MODE" in started("cpu").env) is (share != "split")
    assert "--enable-sleep-mode" not in started("cpu").argv  # vLLM does not start with it on a CPU
