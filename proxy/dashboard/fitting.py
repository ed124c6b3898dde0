"""How much of a comparison is on a page: so many rows, so many bytes of each text.

Owns: the estimate of what mark-up takes, and cutting. Refuses: what is compared, and how it looks (the templates, whose
mark-up these figures are of: a test holds a page of the worst to 300 kB).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from proxy.dashboard.eyes import visible
from recorder.comparing.comparison import Cell, Comparison
from recorder.comparing.differences import ComparedCall

ROOM_BYTES: Final = 245_000  # for all that is compared; the rest of the page takes up to 50,000
FOLDED: Final = 180  # a text of more bytes may be folded: its summary takes some too
READABLE: Final = 1_000  # bytes of a text that somebody is to choose by
ARGUMENTS: Final = 6  # of a tool call
CALLS: Final = 8  # of a turn
_MARKUP: Final = (150_000, 45_000)  # of the first comparison, and of a second
_SUMMARY: Final = 260
_TEXT, _CELL, _CALL, _ARGUMENT, _DIFFERS, _MISSING, _HEAD = 28, 175, 65, 22, 42, 42, 1400
_MOST: Final = 4_000


@dataclass(frozen=True, slots=True)
class Fits:
    """What fits. `turns` and `rows`: of the beginning and after it, for each comparison; `chars`: bytes of a text."""

    turns: tuple[int, ...]
    rows: tuple[int, ...]
    chars: int

    @property
    def folds(self) -> bool:
        """Whether texts are so long that they are folded."""
        return self.chars > FOLDED

    def cut(self, text: str) -> str:
        """The beginning of a text, harmless; it ends in … where that is not all."""
        shown = visible(text[: self.chars])
        whole = len(text) <= self.chars
        while (size := len(escape(shown).encode("utf-8", "replace"))) > self.chars:
            shown, whole = shown[: len(shown) * self.chars // size], False
        return shown if whole else f"{shown}…"


def fit(compared: Sequence[Comparison]) -> Fits:
    """How much of one comparison, or two, a page holds."""
    turns, rows = [], []
    markup = texts = 0
    for one, room in zip(compared, _MARKUP, strict=False):
        heads = sum(1 + min(len(one.attempt(number).parts), 12) for number in one.columns)
        used, texts = len(one.columns) * _HEAD + heads * _TEXT, texts + heads
        turns.append(_prefix([[cell] for cell in one.beginning], room // 3))
        used += sum(map(_size, one.beginning[: turns[-1]]))
        rows.append(_prefix(one.rows, room - used))
        shown = [*one.beginning[: turns[-1]], *(cell for row in one.rows[: rows[-1]] for cell in row)]
        markup += used + sum(map(_size, shown[turns[-1] :]))
        texts += sum(map(_texts, shown))
    return Fits(tuple(turns), tuple(rows), _chars(markup, texts))


def fit_two(beginning: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> Fits:
    """How much of two runs a page holds that shows nothing else of them: rather fewer rows than texts cut short, since
    whoever reads them is to choose, and nothing leads to the whole."""
    room = _MARKUP[0]
    turns = _prefix([[cell] for cell in beginning], room // 3)
    held = _prefix(rows, room - sum(map(_size, beginning[:turns])))
    while (chars := _chars_of(beginning[:turns], rows[:held])) < READABLE and held + turns > 2:
        turns, held = (turns, held * 3 // 4) if held > 1 else (turns * 3 // 4, held)
    return Fits((turns,), (held,), chars)


def _chars_of(beginning: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> int:
    shown = [*beginning, *(cell for row in rows for cell in row)]
    return _chars(sum(map(_size, shown)), sum(map(_texts, shown)))


def _chars(markup: int, texts: int) -> int:
    chars = (ROOM_BYTES - markup) // max(1, texts)
    return min(_MOST, chars if chars <= FOLDED else max(FOLDED, chars - _SUMMARY))


def _prefix(rows: Sequence[Sequence[Cell]], room: int) -> int:
    for at, row in enumerate(rows):
        room -= sum(map(_size, row))
        if room < 0:
            return at
    return len(rows)


def _size(cell: Cell) -> int:
    if cell.state == "missing" or cell.role is None:
        return _MISSING
    words = sum(_named(word, 48) for word in cell.words[:4])
    return _CELL + words + _TEXT * _texts(cell) + sum(map(_call_size, cell.calls[:CALLS]))


def _call_size(call: ComparedCall) -> int:
    size = _CALL + _named(call.name, 60) + (_ARGUMENT + _DIFFERS + 10 if call.result is not None else 0)
    size += sum(_ARGUMENT + _DIFFERS * one.differs + _named(one.name, 40) for one in call.arguments[:ARGUMENTS])
    return size + sum(_ARGUMENT + _DIFFERS + 30 + _named(name, 40) for name in call.gone[:ARGUMENTS])


def _named(name: str, chars: int) -> int:
    return len(escape(visible(name[:chars])[:chars]).encode("utf-8", "replace"))


def _texts(cell: Cell) -> int:
    said = bool(cell.text) + bool(cell.thinking)
    calls = cell.calls[:CALLS]
    return said + sum(min(len(call.arguments), ARGUMENTS) + (call.result is not None) for call in calls)
