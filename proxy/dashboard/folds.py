"""Long things made short for a page: texts folded, conversations shown a part at a time, a page held to its size.

Owns: how much of a text is seen, unfolded and left to another page, and which turns a page of a run has. Refuses: HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from markupsafe import escape

from recorder.base.terminal import clean
from recorder.retelling.turns import Turn

T = TypeVar("T")
SEEN_LINES: Final = 40
SEEN_CHARS: Final = 4_000
UNFOLDED_CHARS: Final = 12_000  # behind those seen; the rest is on the call's own page
PAGE_BYTES: Final = 150_000  # of texts: with what stands around them a page stays below 300 kB
_AROUND_BYTES: Final = 900  # what stands around a turn
_AROUND_TEXT_BYTES: Final = 150
_LEAST_BYTES: Final = 60  # of a text that found no room


@dataclass(frozen=True, slots=True)
class Fold:
    """A text: what is seen, what is behind a fold, and how many characters are left out. Both are made visible."""

    seen: str
    folded: str
    lines: int  # folded
    left_out: int


class Purse:
    """What a page may still spend on texts, in bytes of HTML."""

    def __init__(self, held: int = PAGE_BYTES) -> None:
        self._held = held

    def fold(self, text: str, chars: int = SEEN_CHARS, more: int = UNFOLDED_CHARS) -> Fold:
        """A text, as much of it as there is room for."""
        seen, rest = _seen(text, min(chars, max(_LEAST_BYTES, self._held)))
        folded = rest[: max(0, min(more, self._held - len(seen)))]
        made = Fold(clean(seen), clean(folded), folded.count("\n") + bool(folded), len(rest) - len(folded))
        self._held -= size(made.seen) + size(made.folded)
        return made

    def some(self, things: Sequence[T], most: int) -> Sequence[T]:
        """Those of some turns or branches, at most so many, whose mark-up there is room for."""
        count = min(len(things), most, max(0, self._held // _AROUND_BYTES))
        self._held -= count * _AROUND_BYTES
        return things[:count]


@dataclass(frozen=True, slots=True)
class Part:
    """Some turns that stand together."""

    turns: tuple[Turn, ...]
    skipped: int  # turns between these and the part before
    first_skipped: int | None = None  # where those begin


@dataclass(frozen=True, slots=True)
class Window:
    """The turns that a page shows; `before`, `after`: where the neighbouring pages begin."""

    parts: tuple[Part, ...]
    whole: bool
    before: int | None = None
    after: int | None = None


def size(shown: str) -> int:
    """How many bytes a text has as HTML."""
    return len(str(escape(shown)).encode("utf-8", "replace"))


def window(turns: Sequence[Turn], start: int | None = None, held: int = PAGE_BYTES) -> Window:
    """The turns from the one at `start`; without one the first few and the last, with the middle left out."""
    costs = [_cost(turn) for turn in turns]
    if start is None and sum(costs) <= held:
        return Window((Part(tuple(turns), 0),), whole=True)
    if start is None:
        return _ends(turns, costs, held)
    first = next((at for at, turn in enumerate(turns) if turn.at >= start), max(0, len(turns) - 1))
    after = first + _fit(costs[first:], held)
    before = first - _fit(costs[:first][::-1], held)
    return Window(
        (Part(tuple(turns[first:after]), 0),),
        whole=False,
        before=turns[before].at if before < first else None,
        after=turns[after].at if after < len(turns) else None,
    )


def _ends(turns: Sequence[Turn], costs: Sequence[int], held: int) -> Window:
    head = _fit(costs, held // 4)
    tail = max(head, len(turns) - _fit(costs[::-1], held * 3 // 4))
    if tail == head:
        return Window((Part(tuple(turns), 0),), whole=True)
    rest = Part(tuple(turns[tail:]), tail - head, turns[head].at)
    return Window((Part(tuple(turns[:head]), 0), rest), whole=False, after=turns[head].at)


def _fit(costs: Sequence[int], held: int) -> int:
    """How many of the first there is room for, at least one."""
    spent = 0
    for count, cost in enumerate(costs):
        spent += cost
        if spent > held:
            return max(1, count)
    return len(costs)


def _cost(turn: Turn) -> int:
    """About how many bytes a turn takes."""
    texts = [*turn.texts, turn.thinking or "", *(one.arguments for one in turn.asked)]
    inner = [one.result for one in turn.asked if one.result is not None]
    inner += [*turn.others, *(told for branch in turn.branches for told in branch.turns)]
    own = sum(min(len(text), SEEN_CHARS + UNFOLDED_CHARS) for text in texts)
    around = _AROUND_BYTES + _AROUND_TEXT_BYTES * (len(texts) + len(turn.media) + len(turn.work))
    return around + own * 11 // 10 + sum(map(_cost, inner))


def _seen(text: str, chars: int) -> tuple[str, str]:
    """The beginning of a text, and the rest: cut at a line's end where one is near."""
    at, lines = 0, 0
    while lines < SEEN_LINES and at != -1:
        at, lines = text.find("\n", at + 1), lines + 1
    cut = min(len(text) if at == -1 else at, chars)
    if cut == len(text) or len(text) - cut < chars // 10:
        return text, ""
    return text[:cut], text[cut:].removeprefix("\n")


def without_media(value: Any) -> Any:
    """A message for people: long strings that are no text are named by their length, never shown."""
    if isinstance(value, list):
        return [without_media(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = value.get("type") in (None, "text", "function") or "role" in value
    return {key: without_media(one) if kept else _named(one) for key, one in value.items()}


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 200 else f"… {len(value)} characters"
    if isinstance(value, dict):
        return {key: _named(one) for key, one in value.items()}
    return value
