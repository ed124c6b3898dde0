"""Split conversations into turns, align the turns of several attempts in rows, and name how two turns differ. Pure.

Owns: what a turn is here (a message; an assistant's message together with its tools' results), when two are equal, the
beginning that all attempts share, which turns share a row, and which tool calls are compared. Ids of tool calls are
ignored, because every attempt has its own. Refuses: presentation.

Every turn is in exactly one row, and the order of each attempt's turns is kept. Attempts are added one by one, each by
a weighted longest common subsequence (Wagner and Fischer 1974). It maximises, in this order: turns with the same act,
turns that called the same tools, equal turns, turns of the same role. Turns of different roles never share a row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recorder.base.json_limits import parse_json_text
from recorder.messages import plain_text
from recorder.messages.calls import Message
from recorder.views.comparison.word_changes import TextPart, compare_small_change


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool call. `text`: the string itself, or JSON if the value is not a string (`is_json`).

    Arguments that are not an object become one argument with an empty name.
    """

    name: str
    text: str
    is_json: bool


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """A tool call with its result, None if the conversation has none."""

    name: str
    arguments: tuple[Argument, ...]
    result: str | None = None

    @property
    def act(self) -> tuple[str, tuple[Argument, ...]]:
        """The tool's name and sorted arguments, without the result."""
        return self.name, tuple(sorted(self.arguments, key=lambda one: (one.name, one.text)))


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One turn. `call_id` is the model call that sampled it, if any; equality ignores it."""

    role: str
    text: str
    thinking: str = ""
    tool_calls: tuple[ToolExchange, ...] = ()
    call_id: str | None = field(default=None, compare=False)

    @property
    def act(self) -> object:
        """What the turn did: its tool calls without their results, or its text if it has no tool calls."""
        return (self.role, tuple(one.act for one in self.tool_calls)) if self.tool_calls else (self.role, self.text)

    @property
    def tools(self) -> tuple[str, tuple[str, ...]]:
        """The role, and the names of the tools that the turn called."""
        return self.role, tuple(one.name for one in self.tool_calls)


def conversation_turns(messages: Sequence[Message], sampled: Mapping[int, str] | None = None) -> list[ConversationTurn]:
    """Return the turns of a conversation. `sampled`: position of a message → the call that sampled it."""
    turns: list[ConversationTurn] = []
    open_ids: list[str | None] = []  # the last turn's tool calls, None once the result is known
    for at, message in enumerate(messages):
        if message.get("role") == "tool" and _answer(turns, open_ids, message):
            continue
        turns.append(_turn(message, (sampled or {}).get(at)))
        open_ids = [str(one.id) for one in plain_text.tool_calls(message)]
    return turns


def _answer(turns: list[ConversationTurn], open_ids: list[str | None], message: Message) -> bool:
    """Add a tool's result to the call that it answers; return False if the last turn has no such call."""
    id_ = str(message.get("tool_call_id"))
    if id_ not in open_ids:
        return False
    at = open_ids.index(id_)
    open_ids[at] = None
    exchanges = list(turns[-1].tool_calls)
    exchanges[at] = replace(exchanges[at], result=plain_text.message_text(message, label=plain_text.kind_label))
    turns[-1] = replace(turns[-1], tool_calls=tuple(exchanges))
    return True


def _turn(message: Message, call_id: str | None) -> ConversationTurn:
    exchanges = tuple(ToolExchange(one.name, _arguments(one.arguments)) for one in plain_text.tool_calls(message))
    role, text = str(message.get("role", "?")), plain_text.message_text(message, label=plain_text.kind_label)
    return ConversationTurn(role, text, plain_text.thinking_text(message), exchanges, call_id)


def _arguments(given: object) -> tuple[Argument, ...]:
    try:
        value = parse_json_text(given) if isinstance(given, str) and given else given or {}
    except (ValueError, RecursionError):
        return (Argument("", str(given), is_json=False),)
    if not isinstance(value, dict):
        return (_argument("", value),)
    return tuple(_argument(str(name), one) for name, one in value.items())


def _argument(name: str, value: object) -> Argument:
    if isinstance(value, str):
        return Argument(name, value, is_json=False)
    return Argument(name, json.dumps(value, ensure_ascii=False, sort_keys=True), is_json=True)


# Each weight exceeds the sum of all smaller ones, because an attempt has fewer than 1,000 turns here (`MOST_TURNS`).
_ACT: Final = 1_000_000_000
_TOOLS: Final = 1_000_000
_EQUAL: Final = 1_000
_ROLE: Final = 1
MOST_TURNS: Final = 100  # turns of an attempt that are aligned; the time is the product of two attempts' lengths

Place = int | None  # the index of an attempt's turn in a row; None: it has no turn there


def shared_beginning(attempts: Sequence[Sequence[ConversationTurn]]) -> int:
    """Return the number of equal turns at the beginning of all attempts."""
    if not attempts:
        return 0
    count = 0
    for first, *others in zip(*attempts, strict=False):
        if any(other != first for other in others):
            break
        count += 1
    return count


def align_turns(attempts: Sequence[Sequence[ConversationTurn]]) -> list[list[Place]]:
    """Return the rows, each with the index of one turn of every attempt, or None."""
    rows: list[_Row] = []
    for number, turns in enumerate(attempts):
        rows = _add_attempt(rows, turns, number)
    return [[row.places.get(number) for number in range(len(attempts))] for row in rows]


@dataclass(slots=True)
class _Row:
    """A row that attempts are added to, with the properties of its turns."""

    places: dict[int, int] = field(default_factory=dict)
    known: set[object] = field(default_factory=set)

    def put(self, number: int, place: int, turn: ConversationTurn) -> _Row:
        self.places[number] = place
        self.known |= {("act", turn.act), ("tools", turn.tools), turn, turn.role}
        return self

    def weight(self, turn: ConversationTurn) -> int:
        """Return how well a turn matches this row; 0 if it must not be in it."""
        if turn.role not in self.known:
            return 0
        weight = _ROLE
        weight += _ACT if ("act", turn.act) in self.known else 0
        weight += _TOOLS if ("tools", turn.tools) in self.known else 0
        weight += _EQUAL if turn in self.known else 0
        return weight


def _add_attempt(rows: list[_Row], turns: Sequence[ConversationTurn], number: int) -> list[_Row]:
    """Return the rows with one more attempt."""
    weights = [[row.weight(turn) for turn in turns] for row in rows]
    best = _best(weights, len(turns))
    done: list[_Row] = []
    at_row = at = 0
    while at_row < len(rows) or at < len(turns):
        if at_row == len(rows):
            done.append(_Row().put(number, at, turns[at]))
            at += 1
        elif at == len(turns):
            done.append(rows[at_row])
            at_row += 1
        elif weights[at_row][at] and best[at_row][at] == weights[at_row][at] + best[at_row + 1][at + 1]:
            done.append(rows[at_row].put(number, at, turns[at]))
            at_row, at = at_row + 1, at + 1
        elif best[at_row][at] == best[at_row + 1][at]:
            done.append(rows[at_row])
            at_row += 1
        else:
            done.append(_Row().put(number, at, turns[at]))
            at += 1
    return done


def _best(weights: Sequence[Sequence[int]], turns: int) -> list[list[int]]:
    """Return the highest total weight of aligning the rows and turns from each position on: [row][turn]."""
    best = [[0] * (turns + 1) for _ in range(len(weights) + 1)]
    for row in range(len(weights) - 1, -1, -1):
        here, below, weight = best[row], best[row + 1], weights[row]
        for at in range(turns - 1, -1, -1):
            here[at] = max(below[at], here[at + 1], (weight[at] + below[at + 1]) if weight[at] else 0)
    return best


@dataclass(frozen=True, slots=True)
class ComparedArgument:
    """An argument. `differs`: the other call has another value, or none. `is_json`: the value is not a string.

    `changes`: by words, from the other call's value; empty if it has none or either is long.
    """

    name: str
    text: str
    is_json: bool
    differs: bool
    changes: tuple[TextPart, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A tool call. `new`: the other turn calls no such tool. `gone`: arguments that only the other's call has.

    `result_changes`: as `ComparedArgument.changes`.
    """

    name: str
    arguments: tuple[ComparedArgument, ...]
    gone: tuple[str, ...]
    result: str | None
    result_differs: bool
    new: bool
    result_changes: tuple[TextPart, ...] = ()

    def differences(self) -> list[str]:
        """Return the names of what differs."""
        if self.new:
            return []  # covered by the turn's difference `tools`
        differences = [f"arguments of {self.name}"] if self.gone or any(one.differs for one in self.arguments) else []
        return differences + ([f"result of {self.name}"] if self.result_differs else [])


def compare_calls(turn: ConversationTurn, other: ConversationTurn | None) -> tuple[ComparedCall, ...]:
    """Compare a turn's tool calls with another turn's: the nth call of a tool with the nth call of that tool.

    Without `other` nothing differs.
    """
    if other is None:
        return tuple(_uncompared(one) for one in turn.tool_calls)
    seen: Counter[str] = Counter()
    found = []
    for one in turn.tool_calls:
        theirs = [theirs for theirs in other.tool_calls if theirs.name == one.name][seen[one.name] :]
        seen[one.name] += 1
        found.append(_against(one, theirs[0]) if theirs else _uncompared(one, new=True))
    return tuple(found)


def list_differences(turn: ConversationTurn, other: ConversationTurn) -> tuple[str, ...]:
    """Return the names of what differs; empty if the turns are equal."""
    differences = ["tools"] if turn.tools != other.tools else []
    differences += [word for call in compare_calls(turn, other) for word in call.differences()]
    differences += ["words"] if turn.text != other.text else []
    differences += ["thinking"] if turn.thinking != other.thinking else []
    return tuple(dict.fromkeys(differences or (["order of arguments"] if turn != other else [])))


def _uncompared(one: ToolExchange, *, new: bool = False) -> ComparedCall:
    arguments = tuple(ComparedArgument(a.name, a.text, a.is_json, differs=False) for a in one.arguments)
    return ComparedCall(one.name, arguments, (), one.result, result_differs=False, new=new)


def _against(one: ToolExchange, other: ToolExchange) -> ComparedCall:
    theirs = set(other.arguments)
    old = {argument.name: argument.text for argument in other.arguments}
    arguments = tuple(
        ComparedArgument(a.name, a.text, a.is_json, a not in theirs, compare_small_change(old.get(a.name), a.text))
        for a in one.arguments
    )
    own = {argument.name for argument in one.arguments}
    removed = tuple(argument.name for argument in other.arguments if argument.name not in own)
    result_differs, changes = one.result != other.result, compare_small_change(other.result, one.result)
    return ComparedCall(one.name, arguments, removed, one.result, result_differs, new=False, result_changes=changes)
