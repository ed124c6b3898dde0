"""`hone up` refuses what cannot fit before it starts an engine, and asks for no plan where nothing is shared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.doctor import checkup, machine
from proxy.doctor.memory_plan import MemoryPlan, NoPlan
from proxy.engine.command import engine_command
from proxy.errors import StartError
from proxy.settings.hone import HoneSettings
from proxy.supervision.up import HoneUp, engine_program

SENTENCE = "Qwen3-8B does not fit on one card of 24 GiB: the trainer needs 38.5 GiB. Nearest that fits: one H100."
REFUSED = MemoryPlan(fits=False, sentence=SENTENCE, trainer=38.5, engine_fixed=18.0, settings={})
ALLOCATOR = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}

pytestmark = pytest.mark.usefixtures("bare")


class Output:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, _event: object, text: str, _facts: object) -> None:
        """Keep a line."""
        self.told.append(text)


class AskedPlans:
    """Stands for the child that plans: answers the same each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: MemoryPlan | NoPlan) -> None:
        self.asked: list[tuple[str, list[float]]] = []

        async def ask(base: str, gpus: list[float], **_: Any) -> MemoryPlan | NoPlan:
            self.asked.append((base, gpus))
            return answer

        monkeypatch.setattr(checkup, "ask_plan", ask)
        monkeypatch.setattr(checkup, "list_gpus", lambda: [24.0])


def up(tmp_path: Path, *, with_learner: bool = True, **engine: object) -> HoneUp:
    values: Mapping[str, object] = {"base": "Qwen/Qwen3-8B", "device": "cuda", "port": 8719, **engine}
    settings = HoneSettings.model_validate({"aliases": {"a": {}}, "data": str(tmp_path / "d"), "engine": values})
    settings.proxy.port = 0
    return HoneUp(settings, config=None, flags={}, output=Output(), with_learner=with_learner)  # type: ignore[arg-type]


async def test_what_cannot_fit_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = AskedPlans(monkeypatch, REFUSED)
    hone = up(tmp_path)
    with pytest.raises(StartError) as refused:
        await hone.run()
    assert SENTENCE in str(refused.value)
    assert plans.asked == [("Qwen/Qwen3-8B", [24.0])]
    assert hone.supervisors == {}
    assert not (tmp_path / "d").exists()


async def test_what_cannot_be_planned_is_a_note_and_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AskedPlans(monkeypatch, NoPlan("its family is odd."))
    hone = up(tmp_path)
    await hone._check_before_start()
    assert any("its family is odd" in one for one in hone._output.told)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "setup",
    [
        {"with_learner": False},
        {"urls": ["http://127.0.0.1:9"]},
        {"device": "cpu"},
    ],
)
async def test_a_set_up_that_shares_no_gpu_is_not_planned(
    setup: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = AskedPlans(monkeypatch, REFUSED)
    await up(tmp_path, **setup)._check_before_start()
    assert plans.asked == []


async def test_a_machine_without_a_gpu_is_not_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = AskedPlans(monkeypatch, REFUSED)
    monkeypatch.setattr(checkup, "list_gpus", list)
    await up(tmp_path)._check_before_start()
    assert plans.asked == []
    assert machine.CHECK == "gpu memory"


def test_no_program_gets_settings_of_torchs_allocator(tmp_path: Path) -> None:
    """The trainer sets them in its own process: an engine that inherits them does not sleep."""
    hone = up(tmp_path)
    command = engine_command(hone._settings.engine, key="k", device="cuda")
    engine = engine_program(hone._settings.engine, command, tmp_path / "log")
    for program in (engine, hone._learner(), hone._proxy()):
        assert not ALLOCATOR & set(program.env)
