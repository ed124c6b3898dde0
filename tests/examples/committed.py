"""What is committed of an example's model, as its tests look at it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from examples.making.command import Maker
from examples.making.tokenizer import CHAT_TEMPLATE, make_tokenizer


def note(model: Path) -> dict[str, Any]:
    """What its making wrote down of it."""
    return dict(json.loads((model / "recipe.json").read_text()))


def bytes_of_bfloat16(model: Path) -> int:
    """How many bytes its weights take; all of them are bfloat16."""
    with (model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    assert {entry["dtype"] for entry in tensors} == {"BF16"}
    return max(int(entry["data_offsets"][1]) for entry in tensors)


def assert_made(tokenizer: Any, maker: Maker) -> None:
    """That its tokenizer is what its recipe makes."""
    made = make_tokenizer(maker.texts(maker.recipe.seed), maker.recipe.shape.vocabulary)
    assert made.get_vocab() == tokenizer.get_vocab()
    assert tokenizer.chat_template == CHAT_TEMPLATE
