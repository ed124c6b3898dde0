"""A numbered list: given things in their order, each with an amount, and the amounts rise or fall.

Owns: its prompt, its criteria, and the definition of a right list. Refuses: flawed answers.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from examples.rlvr.forms.form import Form
from examples.rlvr.kinds import says
from examples.rlvr.words import LISTS

_PROMPT: Final = "Write a numbered list in small letters: {things}. Behind each an amount, and amounts {trend}."
_READ: Final = re.compile(
    r"Write a numbered list in small letters: (\w+(?:, \w+)+)\. Behind each an amount, and amounts (rise|fall)\."
)
_LINE: Final = re.compile(r"(\d+)\. ([a-z]+) ([0-9]{1,18})")  # Python refuses to read numbers of thousands of digits


@dataclass(frozen=True, slots=True)
class Things(Form):
    """Things in their order, and whether their amounts rise."""

    things: tuple[str, ...]
    rising: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Return a list of 3 to 5 things."""
        return cls(tuple(rng.choice(words) for words in LISTS[: rng.randint(3, 5)]), rng.random() < 0.5)

    @classmethod
    def read(cls, prompt: str) -> Self | None:
        """Parse a prompt; None if it asks for no list."""
        found = _READ.fullmatch(prompt.strip())
        return None if found is None else cls(tuple(found[1].split(", ")), found[2] == "rise")

    @property
    def trend(self) -> str:
        """Return `rise` or `fall`."""
        return "rise" if self.rising else "fall"

    def prompt(self) -> str:
        """Return the prompt."""
        return _PROMPT.format(things=", ".join(self.things), trend=self.trend)

    def criteria(self) -> list[str]:
        """Return 14 to 20 sentences."""
        lines = range(1, len(self.things) + 1)
        return [
            says("lines", count=len(self.things)),
            says("none_empty"),
            *(says("line_begins", line=line, mark=f"{line}.") for line in lines),
            *(says("line_word", line=line, word=word) for line, word in enumerate(self.things, start=1)),
            *(says("line_words", line=line, count=1) for line in lines),
            says("end_numbers"),
            says(self.trend),
            says("no_capitals"),
        ]

    def fulfilled_by(self, answer: str) -> bool:
        """Whether each line is its number, its thing and its amount, with one space between them."""
        lines = [_LINE.fullmatch(line) for line in answer.strip().split("\n")]
        found = [line.groups() for line in lines if line]
        numbered = [(str(number), thing) for number, thing in enumerate(self.things, start=1)]
        if len(found) != len(lines) or [(number, thing) for number, thing, _ in found] != numbered:
            return False
        amounts = [int(amount) for *_, amount in found]
        return all(a < b if self.rising else a > b for a, b in pairwise(amounts))
