"""What changed between two texts, by words: of an answer beside its correction, of a turn beside another attempt's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")
_MOST: Final = 2000  # words and spaces of a text: the comparison takes their product in time


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of either text: in both, in the old one alone, or in the new one alone."""

    kind: Literal["same", "removed", "added"]
    text: str


def compare_words(old: str, new: str, most: int = _MOST) -> tuple[TextPart, ...]:
    """Return the parts of both texts in order.

    Texts of more than `most` words and spaces are not compared: one is removed, the other added.
    """
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) > most:
        return tuple(_parts(old, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    found: list[TextPart] = []
    for how, at, end, new_at, new_end in matcher.get_opcodes():
        if how == "equal":
            found.append(TextPart("same", "".join(before[at:end])))
        else:
            found += _parts("".join(before[at:end]), "".join(after[new_at:new_end]))
    return tuple(found)


def _parts(old: str, new: str) -> Iterator[TextPart]:
    if old:
        yield TextPart("removed", old)
    if new:
        yield TextPart("added", new)
