"""What is written of each committed model: its recipe is the code's, its README is made of both, and all are small."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from examples.making.command import Maker
from examples.making.note import note_of, size, write_note
from examples.making.training import new_model
from tests.examples.committed import note

MODULES = ["inbox", "mcp_rl", "rlvr", "twenty48"]
MOST_BYTES = 8_000_000  # of all of them


def made(name: str) -> tuple[Maker, Path]:
    module = importlib.import_module(f"examples.{name}.make_model")
    return module.MAKER, module.MODEL


@pytest.mark.parametrize("name", MODULES)
def test_what_is_noted_is_what_the_recipe_says_now(name: str, tmp_path: Path) -> None:
    maker, model = made(name)
    written = note(model)
    assert written == note_of(maker.recipe, maker.mixture, written["training seconds"], written["measured"])
    write_note(tmp_path, maker.title, maker.does, f"python -m {maker.module}", written)
    for file in ("recipe.json", "README.md"):
        assert (tmp_path / file).read_text() == (model / file).read_text()


@pytest.mark.parametrize("name", MODULES)
def test_a_model_has_the_bytes_and_the_parameters_that_are_noted(name: str) -> None:
    maker, model = made(name)

    class Tokenizer:
        eos_token_id, pad_token_id = 2, 0

    measured = note(model)["measured"]
    assert size(model, new_model(Tokenizer(), maker.recipe.shape)) == {
        "bytes": measured["bytes"], "parameters": measured["parameters"],
    }  # fmt: skip


def test_all_weights_together_are_small() -> None:
    weights = [made(name)[1] / "model.safetensors" for name in MODULES]
    assert sum(file.stat().st_size for file in weights) <= MOST_BYTES
