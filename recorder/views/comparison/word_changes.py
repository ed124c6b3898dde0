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


def compare_words(old: str, new: str, *, most: int = _MOST) -> tuple[TextPart, ...]:
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


_FEW: Final = 40  # words and spaces between the beginning and the end that two texts share
_FEW_CHANGES: Final = 8  # parts that are gone or new: a text with more is easier to read without them
_SHORT: Final = 1_600  # characters


def compare_small_change(old: str | None, new: str | None) -> tuple[TextPart, ...]:
    """Return the parts of both texts if they differ in one place or a few near each other; else nothing.

    At least a third of the longer text is in both. A page compares hundreds of texts, so this takes time in proportion
    to their length alone.
    """
    if not old or not new or old == new or max(len(old), len(new)) > _SHORT:
        return ()
    before, after = _WORD.findall(old), _WORD.findall(new)
    head = _shared(before, after)
    tail = _shared(before[head:][::-1], after[head:][::-1])
    left, right = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(left), len(right)) > _FEW:
        return ()
    middle = compare_words("".join(left), "".join(right))
    ends = [TextPart("same", "".join(part)) for part in (before[:head], before[len(before) - tail :])]
    parts = tuple(part for part in (ends[0], *middle, ends[1]) if part.text)
    same = sum(_size(part.text) for part in parts if part.kind == "same")
    is_few = sum(part.kind != "same" for part in parts) <= _FEW_CHANGES
    return parts if is_few and 3 * same >= max(_size(old), _size(new)) else ()


def _size(text: str) -> int:
    """The number of characters without spaces."""
    return sum(map(len, text.split()))


def _shared(some: list[str], others: list[str]) -> int:
    """The number of equal words at the beginning of both."""
    pairs = zip(some, others, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))
