"""Whether each process of a trainer has a GPU of its own, and which settings contradict several processes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.doctor.training_processes import check_processes
from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel


def settings(processes: int, own: list[int] | None = None, **engine: Any) -> HoneSettings:
    trainer = {"processes": processes, "gpus": own or [], "device": "cuda"}
    its_engine = {"base": "org/model", "device": "cuda", **engine}
    return HoneSettings.model_validate({"engine": its_engine, "trainer": trainer})


def found(one: HoneSettings, gpus: int) -> Finding:
    [finding] = check_processes(one, [80.0] * gpus)
    return finding


def test_one_process_is_not_looked_at() -> None:
    assert check_processes(settings(1), [80.0]) == []


def test_processes_beside_the_engine_are_fine() -> None:
    divided = found(settings(2, [0, 1], gpus=[2]), 3)
    assert (divided.verdict, divided.found) == (FindingLevel.FINE, "2 processes train, on GPU 0, 1.")
    assert found(settings(2, gpus=[2]), 3).verdict is FindingLevel.FINE  # the first two are theirs
    assert found(settings(2, urls=["http://127.0.0.1:9"]), 2).verdict is FindingLevel.FINE


def test_too_few_gpus_are_wrong() -> None:
    one = found(settings(2), 2)
    assert (one.verdict, one.stops) == (FindingLevel.WRONG, True)
    assert "this machine has 1 of 2 GPUs that the engine does not use" in one.found
    assert "trainer.processes = 1" in one.todo
    named = found(settings(2, [1, 7], gpus=[0]), 4)
    assert "trainer.gpus names 1 of 4 GPUs" in named.found


def test_the_engines_gpu_among_the_first_is_wrong() -> None:
    one = found(settings(2, gpus=[0]), 4)
    assert (one.verdict, one.todo) == (FindingLevel.WRONG, "Set trainer.gpus = [1, 2].")


def test_without_a_gpu_they_train_on_the_cpu() -> None:
    assert "on the CPU; threads of each: 1" in found(settings(2), 0).found


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"engine": {"share": "sleep"}, "trainer": {"processes": 2}}, "an engine pauses for one process alone"),
        ({"trainer": {"processes": 3, "gpus": [0, 1]}}, r"processes is 3, and gpus \[0, 1\] has 2"),
        ({"trainer": {"shard_base": True, "quantize": "nf4"}}, 'shard_base and quantize = "nf4" exclude each other'),
    ],
)
def test_settings_that_contradict_several_processes_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        HoneSettings.model_validate(given)
