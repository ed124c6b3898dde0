"""The committed model: small, in bfloat16, and within the marks by its own note."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from examples.making.tokenizer import CHAT_TEMPLATE
from examples.rlvr.make_model import LARGEST_BYTES, MODEL, RECIPE, missed

LARGEST_WEIGHTS = 1_800_000  # bytes


def test_everything_needed_is_there_and_small() -> None:
    names = {file.name for file in MODEL.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= names
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= LARGEST_BYTES
    assert (MODEL / "chat_template.jinja").read_text() == CHAT_TEMPLATE


def test_weights_are_bfloat16_and_small() -> None:
    with (MODEL / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} == {"BF16"}
    assert Path(MODEL / "model.safetensors").stat().st_size <= LARGEST_WEIGHTS


def test_its_note_is_of_this_recipe_and_within_the_marks() -> None:
    note = json.loads((MODEL / "recipe.json").read_text())
    assert note["recipe"]["talk_steps"] == RECIPE.talk_steps
    assert note["recipe"]["shape"]["hidden"] == RECIPE.shape.hidden
    assert missed(note["measured"]) == []
