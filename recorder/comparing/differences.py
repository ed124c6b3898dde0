"""How one turn differs from another: in its words, its thinking, its tools, an argument, a result.

Owns: which tool calls of two turns are held against each other, and the words for what differs. Refuses: which turns
are compared (`recorder.comparing.alignment`), colours and signs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from recorder.comparing.turns import Asked, Turn


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


def compared_calls(turn: Turn, other: Turn | None) -> tuple[ComparedCall, ...]:
    """The tool calls of a turn, each held against the other's: its first call of a tool against the first of that tool.

    Without `other` there is nothing that differs.
    """
    if other is None:
        return tuple(_alone(one) for one in turn.asked)
    seen: Counter[str] = Counter()
    found = []
    for one in turn.asked:
        theirs = [theirs for theirs in other.asked if theirs.name == one.name][seen[one.name] :]
        seen[one.name] += 1
        found.append(_against(one, theirs[0]) if theirs else _alone(one, new=True))
    return tuple(found)


def differences(turn: Turn, other: Turn) -> tuple[str, ...]:
    """What differs, in words; nothing where the turns are equal."""
    told = ["tools"] if turn.tools != other.tools else []
    told += [word for call in compared_calls(turn, other) for word in call.differences()]
    told += ["words"] if turn.text != other.text else []
    told += ["thinking"] if turn.thinking != other.thinking else []
    return tuple(dict.fromkeys(told or (["order of arguments"] if turn != other else [])))


def _alone(one: Asked, *, new: bool = False) -> ComparedCall:
    arguments = tuple(ComparedArgument(a.name, a.text, a.is_json, differs=False) for a in one.arguments)
    return ComparedCall(one.name, arguments, (), one.result, result_differs=False, new=new)


def _against(one: Asked, other: Asked) -> ComparedCall:
    theirs = set(other.arguments)
    arguments = tuple(ComparedArgument(a.name, a.text, a.is_json, differs=a not in theirs) for a in one.arguments)
    own = {argument.name for argument in one.arguments}
    gone = tuple(argument.name for argument in other.arguments if argument.name not in own)
    return ComparedCall(one.name, arguments, gone, one.result, result_differs=one.result != other.result, new=False)
