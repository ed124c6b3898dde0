"""GPUs as the driver's program prints them, and the advice for one and for several."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.doctor.machine import MIN_SHARE, check_gpu_memory, list_gpus, share_next_to_trainer
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.base.findings import FindingLevel
from trainer.settings import TrainerSettings


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A driver's program that prints what a script says."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_each_gpus_memory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch, "echo 81920; echo 24576")
    assert list_gpus() == [80, 24]


@pytest.mark.parametrize(
    ("visible", "seen"), [("1", [24]), ("1,0", [24, 80]), ("", []), ("-1", []), ("7", []), ("GPU-ab12", [80])]
)
def test_gpus_that_programs_do_not_see_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, seen: list[float]
) -> None:
    driver(tmp_path, monkeypatch, "echo 81920; echo 24576")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert list_gpus() == seen


@pytest.mark.parametrize("script", ["exit 9", "echo no devices were found", "echo '[N/A]'"])
def test_a_driver_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    driver(tmp_path, monkeypatch, script)
    assert list_gpus() == []


def test_without_the_program_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == []


def settings(*, device: str = "auto", **engine: object) -> HoneSettings:
    return HoneSettings(
        engine=EngineSettings.model_validate({"base": "org/m", "device": "cuda", **engine}),
        trainer=TrainerSettings.model_validate({"device": device}),
    )


def test_an_engine_and_a_trainer_on_one_gpu_are_told_of_the_setting() -> None:
    found = check_gpu_memory(settings(), [80])
    assert found.verdict is FindingLevel.NOTE
    assert "takes 92% of 80 GiB and leaves the trainer 6.4 GiB" in found.found
    assert "engine.gpu_memory_utilization = 0.75" in found.todo


@given(gib=st.floats(4, 200))
def test_what_is_advised_is_then_found_fine(gib: float) -> None:
    share = share_next_to_trainer(gib)
    assert MIN_SHARE <= share < 1
    assert check_gpu_memory(settings(gpu_memory_utilization=share), [gib]).verdict is FindingLevel.FINE


def test_two_gpus_are_not_shared() -> None:
    told = check_gpu_memory(settings(), [80, 80])
    assert told.verdict is FindingLevel.NOTE
    assert 'CUDA_VISIBLE_DEVICES = "1" in [engine.env]' in told.todo
    apart = settings(env={"CUDA_VISIBLE_DEVICES": "1"})
    assert check_gpu_memory(apart, [80, 80]).verdict is FindingLevel.FINE


def test_a_cache_of_a_given_size_is_a_split_too() -> None:
    assert check_gpu_memory(settings(kv_cache_bytes=2**30), [24]).verdict is FindingLevel.FINE


def test_nothing_is_advised_where_nothing_is_shared() -> None:
    assert check_gpu_memory(settings(), []).verdict is FindingLevel.SKIPPED
    assert check_gpu_memory(settings(urls=["http://127.0.0.1:9"]), [80]).verdict is FindingLevel.SKIPPED
    assert check_gpu_memory(settings(device="cpu"), [80]).verdict is FindingLevel.FINE
