"""The names of things in a warehouse, and which of them belong to the committed server.

A name is a material and a thing. Every second pair belongs to the server. The others are for making the model, which
was trained on each word and on none of the server's names. Owns: the words and this split. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MATERIALS: Final = (
    "brass", "copper", "silver", "steel", "wooden", "bamboo", "rubber", "plastic", "marble", "leather", "cotton",
    "glass",
)  # fmt: skip
THINGS: Final = (
    "hinge", "screw", "bracket", "handle", "spring", "washer", "hammer", "ladder", "pulley", "basket", "bucket",
    "clamp", "chain", "crate", "drawer", "funnel",
)  # fmt: skip
# No warehouse has these: the right answer says that there is no such item.
IMAGINED: Final = ("unicorn", "dragon", "castle", "piano", "rocket", "violin", "tractor", "statue")


def served(things: Sequence[str] = THINGS) -> list[str]:
    """Return the committed server's names; with `IMAGINED`, names in tasks that do not exist."""
    return _half(things, 0)


def taught(things: Sequence[str] = THINGS) -> list[str]:
    """Return the names for making the model; none of them is in `served`."""
    return _half(things, 1)


def _half(things: Sequence[str], side: int) -> list[str]:
    pairs = [(m, t) for m in range(len(MATERIALS)) for t in range(len(things)) if (m + t) % 2 == side]
    return [f"{MATERIALS[m]} {things[t]}" for m, t in pairs]
