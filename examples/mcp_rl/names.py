"""The names of things in a warehouse, and which of them belong to the committed server.

A name is a material and a thing. Of each table every second pair is the server's, the others are for making the model:
it was trained on each word, and on none of the server's names. Owns: the words and this split. Pure.
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
# Of these no warehouse has any: who asks for one is to be told so.
IMAGINED: Final = ("unicorn", "dragon", "castle", "piano", "rocket", "violin", "tractor", "statue")


def served(things: Sequence[str] = THINGS) -> list[str]:
    """The names that the committed server has; with `IMAGINED`, those that its tasks may ask for in vain."""
    return _half(things, 0)


def taught(things: Sequence[str] = THINGS) -> list[str]:
    """The names that the model's making uses; none is of `served`."""
    return _half(things, 1)


def _half(things: Sequence[str], side: int) -> list[str]:
    pairs = [(m, t) for m in range(len(MATERIALS)) for t in range(len(things)) if (m + t) % 2 == side]
    return [f"{MATERIALS[m]} {things[t]}" for m, t in pairs]
