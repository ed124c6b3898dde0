"""GPUs as the driver's program prints them, and the advice for one and for several."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.doctor.machine import check_gpu_memory, list_gpus, shares_gpus
from proxy.doctor.memory_plan import MemoryPlan, NoPlan
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


PLAN = MemoryPlan(
    True, "m fits.", trainer=12.0, engine_fixed=20.0,
    settings={"engine.gpu_memory_utilization": 0.85, "engine.kv_cache_bytes": 45 * 2**30, "trainer.token_budget": 1},
)  # fmt: skip


def test_an_engine_and_a_trainer_on_one_gpu_are_told_of_the_settings() -> None:
    found = check_gpu_memory(settings(), [80], PLAN)
    assert found.verdict is FindingLevel.NOTE
    assert "takes 73.6 of 80 GiB and leaves the trainer 6.4 GiB, and it needs 12.0 GiB" in found.found
    assert "engine.gpu_memory_utilization = 0.85 and engine.kv_cache_bytes = 48318382080" in found.todo


def test_what_is_advised_is_then_found_fine() -> None:
    by_share = settings(gpu_memory_utilization=0.85)
    by_cache = settings(kv_cache_bytes=45 * 2**30)
    assert [check_gpu_memory(one, [80], PLAN).verdict for one in (by_share, by_cache)] == [FindingLevel.FINE] * 2


def test_a_cache_that_leaves_too_little_is_told() -> None:
    assert check_gpu_memory(settings(kv_cache_bytes=55 * 2**30), [80], PLAN).verdict is FindingLevel.NOTE


def test_what_cannot_fit_is_wrong_in_the_words_of_the_plan() -> None:
    no = MemoryPlan(False, "m does not fit. Nearest that fits: n.", 90.0, 20.0, {})
    found = check_gpu_memory(settings(), [80], no)
    assert (found.verdict, found.found) == (FindingLevel.WRONG, no.sentence)


def test_a_plan_that_cannot_be_made_is_a_note_with_its_reason() -> None:
    found = check_gpu_memory(settings(), [80], NoPlan("the hub does not answer."))
    assert found.verdict is FindingLevel.NOTE
    assert "the hub does not answer." in found.found


def test_two_gpus_are_not_shared() -> None:
    told = check_gpu_memory(settings(), [80, 80], PLAN)
    assert told.verdict is FindingLevel.NOTE
    assert "engine.gpus = [1] and trainer.gpus = [0]" in told.todo
    divided = settings(gpus=[1])
    assert check_gpu_memory(divided, [80, 80], PLAN).verdict is FindingLevel.FINE
    apart = settings(env={"CUDA_VISIBLE_DEVICES": "1"})
    assert check_gpu_memory(apart, [80, 80], PLAN).verdict is FindingLevel.FINE


def verdict(one: HoneSettings, there: list[float]) -> FindingLevel | None:
    found = shares_gpus(one, there)
    return None if found is None else found.verdict


def test_nothing_is_computed_where_nothing_is_shared() -> None:
    assert verdict(settings(), []) is FindingLevel.SKIPPED
    assert verdict(settings(urls=["http://127.0.0.1:9"]), [80]) is FindingLevel.SKIPPED
    assert verdict(settings(device="cpu"), [80]) is FindingLevel.FINE
    assert verdict(settings(), [80]) is None
