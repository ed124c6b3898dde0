"""Which drafts become scenarios: each is checked by code, and one that is dropped is counted with its reason.

Owns: the reasons, when two tasks are nearly one, a scenario's id. Refuses: asking for others in their place
(`trainer.generating.generate`). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from recorder.content.alike import mask
from trainer.generating.difficulties import Difficulty
from trainer.generating.reading import Draft
from trainer.tasks.scenarios import Scenario
from trainer.tasks.traffic import alike, pieces

MOST_CHARS: Final = 8_000  # of what one user says: a longer one is a model that does not stop
_WORD: Final = re.compile(r"[A-Za-z0-9_./:-]+")


class Dropped(StrEnum):
    """Why a draft is no scenario."""

    UNREADABLE = "unreadable"  # no JSON object with an input, or cut off
    NO_INPUT = "no_input"
    TOO_LONG = "too_long"
    ABSENT_TOOL = "absent_tool"  # it names a tool that the agent will not have
    OTHER_DIFFICULTY = "other_difficulty"  # its tools are not those of the kind that was asked for
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"  # the same words but for numbers, dates and names, or nearly


class Checker:
    """Checks drafts one after the other, against each other too.

    `tools`: the names that scenarios may need. `absent`: those that the server has and the agent will not be offered.
    """

    def __init__(self, tools: Collection[str], absent: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)
        self._absent = frozenset(absent) - self._tools
        self._inputs: set[str] = set()
        self._pieces: list[frozenset[str]] = []

    def know(self, task: str) -> None:
        """Take a task that is a scenario already as said."""
        self._likeness(task)

    def check(self, draft: Draft, kind: Difficulty) -> Scenario | Dropped:
        """The scenario that a draft makes, or why it makes none."""
        why = self._form(draft) or self._tooling(draft, kind) or self._likeness(draft.input)
        return why if why is not None else _scenario(draft, kind)

    def _form(self, draft: Draft) -> Dropped | None:
        if not draft.input:
            return Dropped.NO_INPUT
        return Dropped.TOO_LONG if len(draft.input) > MOST_CHARS else None

    def _tooling(self, draft: Draft, kind: Difficulty) -> Dropped | None:
        if not self._tools.issuperset(draft.tools) or self._absent.intersection(_WORD.findall(draft.input)):
            return Dropped.ABSENT_TOOL
        return None if self._fits(len(draft.tools), kind) else Dropped.OTHER_DIFFICULTY

    def _fits(self, calls: int, kind: Difficulty) -> bool:
        """Whether so many calls are what a kind means; without tools there is nothing to count."""
        if kind is Difficulty.NOTHING_TO_DO or not self._tools:
            return calls == 0
        least, most = {Difficulty.ONE_TOOL: (1, 1), Difficulty.SEVERAL_STEPS: (2, None)}.get(kind, (0, None))
        return calls >= least and (most is None or calls <= most)

    def _likeness(self, task: str) -> Dropped | None:
        """Why a task says nothing new; what is new is remembered."""
        plain = " ".join(task.casefold().split())
        if plain in self._inputs:
            return Dropped.DUPLICATE
        found = pieces(re.findall(r"\w+", mask(plain)))
        if any(alike(found, other) for other in self._pieces):
            return Dropped.NEAR_DUPLICATE
        self._inputs.add(plain)
        self._pieces.append(found)
        return None


def _scenario(draft: Draft, kind: Difficulty) -> Scenario:
    digest = blake2b(draft.input.encode(errors="backslashreplace"), digest_size=6).hexdigest()
    reference = {"difficulty": str(kind), "tools": list(draft.tools), "expected": draft.expected}
    return Scenario(
        f"{kind.replace('_', '-')}-{digest}", draft.input, reference, adversarial=kind is Difficulty.ADVERSARIAL
    )
