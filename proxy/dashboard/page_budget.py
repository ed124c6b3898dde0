"""Keep pages small: fold long texts, show conversations in windows, and limit the rows and texts of a comparison.

Owns: how much of a text is visible, folded or cut, which messages a page shows, and the estimate of a page's size.
Refuses: HTML. The byte counts of markup belong to the templates; a test holds the largest page below 300 kB.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import markupsafe

from proxy.dashboard.formatters import visible
from recorder.base.terminal import clean
from recorder.views.comparison.alignment import ComparedCall
from recorder.views.comparison.attempts import Comparison, ComparisonCell
from recorder.views.comparison.trajectory_pair import TrajectoryPair
from recorder.views.comparison.word_changes import TextPart
from recorder.views.trajectory_detail.conversation import ConversationMessage

T = TypeVar("T")
SEEN_LINES: Final = 40
SEEN_CHARS: Final = 4_000
UNFOLDED_CHARS: Final = 12_000  # in the fold; the rest is on the page of the call
PAGE_BYTES: Final = 150_000  # of texts: with its markup a page stays below 300 kB
_AROUND_BYTES: Final = 900  # markup of a message
_AROUND_TEXT_BYTES: Final = 150
_LEAST_BYTES: Final = 60  # of a text, even without room


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text: its visible part, its folded part, and how many characters are cut. Control characters are visible."""

    seen: str
    folded: str
    lines: int  # folded
    left_out: int


class ByteBudget:
    """The bytes of HTML that a page may still spend on texts."""

    def __init__(self, held: int = PAGE_BYTES) -> None:
        self._held = held

    def fold(self, text: str, chars: int = SEEN_CHARS, more: int = UNFOLDED_CHARS) -> FoldedText:
        """As much of a text as there is room for; its size is taken from the budget."""
        seen, rest = _seen(text, min(chars, max(_LEAST_BYTES, self._held)))
        folded = rest[: max(0, min(more, self._held - len(seen)))]
        made = FoldedText(clean(seen), clean(folded), folded.count("\n") + bool(folded), len(rest) - len(folded))
        self._held -= html_size(made.seen) + html_size(made.folded)
        return made

    def some(self, things: Sequence[T], most: int) -> Sequence[T]:
        """The first messages or branches, at most `most`, for which there is room; taken from the budget."""
        count = min(len(things), most, max(0, self._held // _AROUND_BYTES))
        self._held -= count * _AROUND_BYTES
        return things[:count]


@dataclass(frozen=True, slots=True)
class TurnRun:
    """Consecutive messages."""

    turns: tuple[ConversationMessage, ...]
    skipped: int  # messages between these and the part before
    first_skipped: int | None = None  # the index of the first of those


@dataclass(frozen=True, slots=True)
class Window:
    """The messages that a page shows. `before`, `after`: the first message of the neighbouring pages."""

    parts: tuple[TurnRun, ...]
    whole: bool
    before: int | None = None
    after: int | None = None


def html_size(text: str) -> int:
    """The size of a text as HTML, in bytes."""
    return len(str(markupsafe.escape(text)).encode("utf-8", "replace"))


def turn_window(turns: Sequence[ConversationMessage], start: int | None = None, held: int = PAGE_BYTES) -> Window:
    """The messages from `start` on; without it the first and the last ones, with the middle skipped."""
    costs = [_cost(turn) for turn in turns]
    if start is None and sum(costs) <= held:
        return Window((TurnRun(tuple(turns), 0),), whole=True)
    if start is None:
        return _ends(turns, costs, held)
    first = next((at for at, turn in enumerate(turns) if turn.at >= start), max(0, len(turns) - 1))
    after = first + _fit(costs[first:], held)
    before = first - _fit(costs[:first][::-1], held)
    return Window(
        (TurnRun(tuple(turns[first:after]), 0),),
        whole=False,
        before=turns[before].at if before < first else None,
        after=turns[after].at if after < len(turns) else None,
    )


def _ends(turns: Sequence[ConversationMessage], costs: Sequence[int], held: int) -> Window:
    head = _fit(costs, held // 4)
    tail = max(head, len(turns) - _fit(costs[::-1], held * 3 // 4))
    if tail == head:
        return Window((TurnRun(tuple(turns), 0),), whole=True)
    rest = TurnRun(tuple(turns[tail:]), tail - head, turns[head].at)
    return Window((TurnRun(tuple(turns[:head]), 0), rest), whole=False, after=turns[head].at)


def _fit(costs: Sequence[int], held: int) -> int:
    """How many of the first there is room for; at least one."""
    spent = 0
    for count, cost in enumerate(costs):
        spent += cost
        if spent > held:
            return max(1, count)
    return len(costs)


def _cost(turn: ConversationMessage) -> int:
    """The estimated size of a message, in bytes."""
    texts = [*turn.texts, turn.thinking or "", *(one.arguments for one in turn.tool_calls)]
    inner = [one.result for one in turn.tool_calls if one.result is not None]
    inner += [*turn.unselected_choices, *(message for branch in turn.branches for message in branch.messages)]
    own = sum(min(len(text), SEEN_CHARS + UNFOLDED_CHARS) for text in texts)
    around = _AROUND_BYTES + _AROUND_TEXT_BYTES * (len(texts) + len(turn.media) + len(turn.gateway_calls))
    return around + own * 11 // 10 + sum(map(_cost, inner))


def _seen(text: str, chars: int) -> tuple[str, str]:
    """The beginning of a text and the rest, cut at a line end if one is near."""
    at, lines = 0, 0
    while lines < SEEN_LINES and at != -1:
        at, lines = text.find("\n", at + 1), lines + 1
    cut = min(len(text) if at == -1 else at, chars)
    if cut == len(text) or len(text) - cut < chars // 10:
        return text, ""
    return text[:cut], text[cut:].removeprefix("\n")


def without_media(value: Any) -> Any:
    """A message with its media (long strings that are not text) replaced by their length."""
    if isinstance(value, list):
        return [without_media(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_plain = value.get("type") in (None, "text", "function") or "role" in value
    return {key: without_media(one) if is_plain else _named(one) for key, one in value.items()}


def _named(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 200 else f"… {len(value)} characters"
    if isinstance(value, dict):
        return {key: _named(one) for key, one in value.items()}
    return value


ROOM_BYTES: Final = 245_000  # of a comparison; the rest of the page takes up to 50,000
FOLDED: Final = 180  # bytes of a text above which it may be folded: the summary takes some too
READABLE: Final = 1_000  # bytes of a text that a person needs to choose
ARGUMENTS: Final = 6  # of a tool call
CALLS: Final = 8  # of a turn
_MARKUP: Final = (150_000, 45_000)  # of the first comparison, and of a second
_SUMMARY: Final = 260
_TEXT, _CELL, _CALL, _ARGUMENT, _DIFFERS, _MISSING, _HEAD = 28, 175, 65, 22, 42, 42, 1400
_MARK: Final = 11  # <ins></ins>
_MOST: Final = 4_000


@dataclass(frozen=True, slots=True)
class PageFit:
    """What fits on a page: shared turns and rows after them for each comparison, and bytes of one text (`chars`)."""

    turns: tuple[int, ...]
    rows: tuple[int, ...]
    chars: int

    @property
    def folds(self) -> bool:
        """Whether texts are long enough to be folded."""
        return self.chars > FOLDED

    def cut(self, text: str) -> str:
        """The beginning of a text, with control characters visible; a cut text ends in …."""
        visible_text = visible(text[: self.chars])
        whole = len(text) <= self.chars
        while (size := len(html.escape(visible_text).encode("utf-8", "replace"))) > self.chars:
            visible_text, whole = visible_text[: len(visible_text) * self.chars // size], False
        return visible_text if whole else f"{visible_text}…"


def fit_comparison(compared: Sequence[Comparison]) -> PageFit:
    """How much of one or two comparisons fits on a page."""
    turns, rows = [], []
    markup = texts = 0
    for one, room in zip(compared, _MARKUP, strict=False):
        heads = sum(1 + min(len(one.attempt(number).parts), 12) for number in one.columns)
        used, texts = len(one.columns) * _HEAD + heads * _TEXT, texts + heads
        turns.append(_prefix([[cell] for cell in one.beginning], room // 3))
        used += sum(map(_size, one.beginning[: turns[-1]]))
        rows.append(_prefix(one.rows, room - used))
        cells = [*one.beginning[: turns[-1]], *(cell for row in one.rows[: rows[-1]] for cell in row)]
        markup += used + sum(map(_size, cells[turns[-1] :]))
        texts += sum(map(_texts, cells))
    return PageFit(tuple(turns), tuple(rows), _chars(markup, texts))


def fit_pair(beginning: Sequence[ComparisonCell], rows: Sequence[Sequence[ComparisonCell]]) -> PageFit:
    """How much of a blind pair fits on a page. It prefers fewer rows to shorter texts: a person chooses by these texts,
    and the page has no links to the full ones."""
    room = _MARKUP[0]
    turns = _prefix([[cell] for cell in beginning], room // 3)
    held = _prefix(rows, room - sum(map(_size, beginning[:turns])))
    while (chars := _chars_of(beginning[:turns], rows[:held])) < READABLE and held + turns > 2:
        turns, held = (turns, held * 3 // 4) if held > 1 else (turns * 3 // 4, held)
    return PageFit((turns,), (held,), chars)


_PAIRS_BYTES: Final = 60_000  # of all pairs on a page that has more to show
_PAIR_ROWS: Final = 12  # of one of them; the rest is on the pages of its trajectories


def fit_trajectory_pairs(pairs: Sequence[TrajectoryPair]) -> PageFit:
    """How much of some pairs of trajectories fits beside the rest of a page: the first rows of each."""
    room = _PAIRS_BYTES // (2 * max(1, len(pairs)))
    turns = tuple(_prefix([[cell] for cell in one.beginning[:_PAIR_ROWS]], room // 3) for one in pairs)
    rows = tuple(_prefix(one.rows[:_PAIR_ROWS], room) for one in pairs)
    cells = [
        cell
        for one, at_most, held in zip(pairs, turns, rows, strict=True)
        for cell in (*one.beginning[:at_most], *(cell for row in one.rows[:held] for cell in row))
    ]
    texts = max(1, sum(map(_texts, cells)))
    return PageFit(turns, rows, max(_LEAST_BYTES, min(_MOST, (_PAIRS_BYTES - sum(map(_size, cells))) // texts)))


def _chars_of(beginning: Sequence[ComparisonCell], rows: Sequence[Sequence[ComparisonCell]]) -> int:
    cells = [*beginning, *(cell for row in rows for cell in row)]
    return _chars(sum(map(_size, cells)), sum(map(_texts, cells)))


def _chars(markup: int, texts: int) -> int:
    chars = (ROOM_BYTES - markup) // max(1, texts)
    return min(_MOST, chars if chars <= FOLDED else max(FOLDED, chars - _SUMMARY))


def _prefix(rows: Sequence[Sequence[ComparisonCell]], room: int) -> int:
    for at, row in enumerate(rows):
        room -= sum(map(_size, row))
        if room < 0:
            return at
    return len(rows)


def _size(cell: ComparisonCell) -> int:
    if cell.state == "missing" or cell.role is None:
        return _MISSING
    names = sum(_named_part(name, 48) for name in cell.differences[:4])
    return _CELL + names + _TEXT * _texts(cell) + sum(map(_call_size, cell.calls[:CALLS])) + _changes_size(cell.changes)


def _call_size(call: ComparedCall) -> int:
    size = _CALL + _named_part(call.name, 60) + (_ARGUMENT + _DIFFERS + 10 if call.result is not None else 0)
    size += sum(_ARGUMENT + _DIFFERS * one.differs + _named_part(one.name, 40) for one in call.arguments[:ARGUMENTS])
    size += sum(_changes_size(one.changes) for one in call.arguments[:ARGUMENTS]) + _changes_size(call.result_changes)
    return size + sum(_ARGUMENT + _DIFFERS + 30 + _named_part(name, 40) for name in call.gone[:ARGUMENTS])


def _changes_size(changes: Sequence[TextPart]) -> int:
    """The bytes that a text takes more because its changes are shown: their marks, and the words that are gone."""
    marks = sum(_MARK for part in changes if part.kind != "same")
    return marks + sum(_named_part(part.text, len(part.text)) for part in changes if part.kind == "removed")


def _named_part(name: str, chars: int) -> int:
    return len(html.escape(visible(name[:chars])[:chars]).encode("utf-8", "replace"))


def _texts(cell: ComparisonCell) -> int:
    fields = bool(cell.text) + bool(cell.thinking)
    calls = cell.calls[:CALLS]
    return fields + sum(min(len(call.arguments), ARGUMENTS) + (call.result is not None) for call in calls)
