"""Turns of several attempts put into rows, so that the eye sees where they part.

Owns: the beginning that all share, and which turns stand in one row. Refuses: what a difference is
(`recorder.views.comparison.alignment`).

Nothing is lost and no order changes: every turn stands in one row, and those of an attempt follow each other. Of all
ways to do so, the attempt that comes to the rows of those before it takes one with the most turns that did the same;
of these one with the most that called the same tools; then that are alike to the letter; then that are of the same role
(longest common subsequences, Wagner and Fischer 1974, over these four). Turns of different roles never share a row.

How one turn differs from another: in its words, its thinking, its tools, an argument, a result.

Owns: which tool calls of two turns are held against each other, and the words for what differs. Refuses: which turns
are compared (`recorder.views.comparison.alignment`), colours and signs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from recorder.views.comparison.turns import ConversationTurn, ToolExchange

# One of each is worth more than all that come after it: no attempt has a thousand turns here (`MOST_TURNS`).
_ACT: Final = 1_000_000_000
_TOOLS: Final = 1_000_000
_WHOLE: Final = 1_000
_ROLE: Final = 1
MOST_TURNS: Final = 100  # of an attempt that are aligned: the time grows with the product of two attempts' lengths

Place = int | None  # which turn of an attempt stands in a row; None: it has none there


def shared_beginning(attempts: Sequence[Sequence[ConversationTurn]]) -> int:
    """How many turns all attempts begin with alike."""
    if not attempts:
        return 0
    count = 0
    for first, *others in zip(*attempts, strict=False):
        if any(other != first for other in others):
            break
        count += 1
    return count


def align_turns(attempts: Sequence[Sequence[ConversationTurn]]) -> list[list[Place]]:
    """Rows, each with the place of one turn of every attempt or None."""
    rows: list[_Row] = []
    for number, turns in enumerate(attempts):
        rows = _with(rows, turns, number)
    return [[row.places.get(number) for number in range(len(attempts))] for row in rows]


@dataclass(slots=True)
class _Row:
    """A row as it grows, and what its turns did."""

    places: dict[int, int] = field(default_factory=dict)
    known: set[object] = field(default_factory=set)

    def put(self, number: int, place: int, turn: ConversationTurn) -> _Row:
        self.places[number] = place
        self.known |= {("act", turn.act), ("tools", turn.tools), turn, turn.role}
        return self

    def worth(self, turn: ConversationTurn) -> int:
        """How well a turn stands here; 0: not at all."""
        if turn.role not in self.known:
            return 0
        worth = _ROLE
        worth += _ACT if ("act", turn.act) in self.known else 0
        worth += _TOOLS if ("tools", turn.tools) in self.known else 0
        worth += _WHOLE if turn in self.known else 0
        return worth


def _with(rows: list[_Row], turns: Sequence[ConversationTurn], number: int) -> list[_Row]:
    """The rows with one more attempt in them."""
    worths = [[row.worth(turn) for turn in turns] for row in rows]
    best = _best(worths, len(turns))
    done: list[_Row] = []
    at_row = at = 0
    while at_row < len(rows) or at < len(turns):
        if at_row == len(rows):
            done.append(_Row().put(number, at, turns[at]))
            at += 1
        elif at == len(turns):
            done.append(rows[at_row])
            at_row += 1
        elif worths[at_row][at] and best[at_row][at] == worths[at_row][at] + best[at_row + 1][at + 1]:
            done.append(rows[at_row].put(number, at, turns[at]))
            at_row, at = at_row + 1, at + 1
        elif best[at_row][at] == best[at_row + 1][at]:
            done.append(rows[at_row])
            at_row += 1
        else:
            done.append(_Row().put(number, at, turns[at]))
            at += 1
    return done


def _best(worths: Sequence[Sequence[int]], turns: int) -> list[list[int]]:
    """What the rest is worth at best, from each row and each turn on."""
    best = [[0] * (turns + 1) for _ in range(len(worths) + 1)]
    for row in range(len(worths) - 1, -1, -1):
        here, below, worth = best[row], best[row + 1], worths[row]
        for at in range(turns - 1, -1, -1):
            here[at] = max(below[at], here[at + 1], (worth[at] + below[at + 1]) if worth[at] else 0)
    return best


@dataclass(frozen=True, slots=True)
class ComparedArgument:
    """An argument; `differs`: the other call has another value, or none. `is_json`: the value is no string."""

    name: str
    text: str
    is_json: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A tool call. `new`: the other turn calls no such tool. `gone`: arguments that only the other's call has."""

    name: str
    arguments: tuple[ComparedArgument, ...]
    gone: tuple[str, ...]
    result: str | None
    result_differs: bool
    new: bool

    def differences(self) -> list[str]:
        """In words."""
        if self.new:
            return []  # that the turns call other tools is said once
        told = [f"arguments of {self.name}"] if self.gone or any(one.differs for one in self.arguments) else []
        return told + ([f"result of {self.name}"] if self.result_differs else [])


def compare_calls(turn: ConversationTurn, other: ConversationTurn | None) -> tuple[ComparedCall, ...]:
    """The tool calls of a turn, each held against the other's: its first call of a tool against the first of that tool.

    Without `other` there is nothing that differs.
    """
    if other is None:
        return tuple(_alone(one) for one in turn.tool_calls)
    seen: Counter[str] = Counter()
    found = []
    for one in turn.tool_calls:
        theirs = [theirs for theirs in other.tool_calls if theirs.name == one.name][seen[one.name] :]
        seen[one.name] += 1
        found.append(_against(one, theirs[0]) if theirs else _alone(one, new=True))
    return tuple(found)


def list_differences(turn: ConversationTurn, other: ConversationTurn) -> tuple[str, ...]:
    """What differs, in words; nothing where the turns are equal."""
    told = ["tools"] if turn.tools != other.tools else []
    told += [word for call in compare_calls(turn, other) for word in call.differences()]
    told += ["words"] if turn.text != other.text else []
    told += ["thinking"] if turn.thinking != other.thinking else []
    return tuple(dict.fromkeys(told or (["order of arguments"] if turn != other else [])))


def _alone(one: ToolExchange, *, new: bool = False) -> ComparedCall:
    arguments = tuple(ComparedArgument(a.name, a.text, a.is_json, differs=False) for a in one.arguments)
    return ComparedCall(one.name, arguments, (), one.result, result_differs=False, new=new)


def _against(one: ToolExchange, other: ToolExchange) -> ComparedCall:
    theirs = set(other.arguments)
    arguments = tuple(ComparedArgument(a.name, a.text, a.is_json, differs=a not in theirs) for a in one.arguments)
    own = {argument.name for argument in one.arguments}
    gone = tuple(argument.name for argument in other.arguments if argument.name not in own)
    return ComparedCall(one.name, arguments, gone, one.result, result_differs=one.result != other.result, new=False)
