"""What `hone doctor` and a trainer's start say about `trainer.target`: the same sentence, without any weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from recorder.base.findings import FindingLevel
from tests.trainer.families import make_model, save_family
from trainer.policy.base_model import explain_target
from trainer.progress import Event, Notice
from trainer.runtime.train import open_in_background
from trainer.settings import TrainerSettings
from trainer.step.state.target_check import check_target


def test_the_sentence_is_the_model_s_and_needs_its_configuration_alone(tmp_path: Path) -> None:
    base = save_family("glm4-moe", tmp_path)
    (base / "model.safetensors").unlink()
    settings = TrainerSettings(base=str(base), target="attention")
    model = make_model("glm4-moe")
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    total = sum(sizes.values())
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    sentence = explain_target(base, settings)
    assert f"{100 * experts / total:.0f}%" in sentence
    [found] = check_target(settings)
    assert (found.verdict, found.found) == (FindingLevel.FINE, sentence)


def test_a_target_that_cannot_work_is_a_fault(tmp_path: Path) -> None:
    base = save_family("llama3", tmp_path)
    [found] = check_target(TrainerSettings(base=str(base), target="experts"))
    assert found.verdict is FindingLevel.WRONG
    assert "has no fused experts" in found.found
    (base / "config.json").write_text(json.dumps({"model_type": "unheard_of"}))
    [found] = check_target(TrainerSettings(base=str(base)))
    assert found.verdict is FindingLevel.WRONG
    assert check_target(TrainerSettings(base="a/hub-id")) == []


async def test_a_trainer_that_opens_says_what_it_adapts() -> None:
    class Opened:
        target_note = "it adapts all"

        async def close(self) -> None: ...

    class Told:
        def __init__(self) -> None:
            self.events: list[Event] = []

        def tell(self, event: Event) -> None:
            self.events.append(event)

    async def open_with(*_: object) -> Any:
        return Opened()

    told, nothing = Told(), cast(Any, None)
    async with open_in_background(nothing, nothing, nothing, open_with, told) as opening:
        await opening
    assert told.events == [Notice("it adapts all")]
