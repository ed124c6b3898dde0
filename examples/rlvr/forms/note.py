"""A note: a number of lines with a number of words each, with words that must and must not be in it.

Owns: its prompt, its criteria, and the definition of a right note. Refuses: flawed answers.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final, Self

from examples.rlvr.forms.form import Form
from examples.rlvr.kinds import says
from examples.rlvr.words import LISTS, MARKS

_PROMPT: Final = (
    "Write {lines} lines of {words} words. Begin with {begin}. Use {use}. Avoid {avoid}. End with {end}. "
    "Small letters, each line closed with {mark}"
)
_READ: Final = re.compile(
    r"Write (\d) lines of (\d) words\. Begin with (\w+)\. Use (\w+) and (\w+)\. Avoid (\w+) and (\w+)\. "
    r"End with (\w+)\. Small letters, each line closed with (\S)"
)


@dataclass(frozen=True, slots=True)
class Note(Form):
    """A note that begins and ends with given words, uses two others and avoids two."""

    lines: int
    words: int
    begin: str
    end: str
    use: tuple[str, str]
    avoid: tuple[str, str]
    mark: str

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Return a note of 2 to 4 lines of 3 to 5 words."""
        begin, a, b, c, d, end = (rng.choice(words) for words in LISTS[:6])
        return cls(rng.randint(2, 4), rng.randint(3, 5), begin, end, (a, b), (c, d), rng.choice(MARKS))

    @classmethod
    def read(cls, prompt: str) -> Self | None:
        """Parse a prompt; None if it asks for no note."""
        if (found := _READ.fullmatch(prompt.strip())) is None:
            return None
        lines, words, begin, a, b, c, d, end, mark = found.groups()
        return cls(int(lines), int(words), begin, end, (a, b), (c, d), mark)

    def prompt(self) -> str:
        """Return the prompt."""
        return _PROMPT.format(
            lines=self.lines,
            words=self.words,
            begin=self.begin,
            end=self.end,
            use=" and ".join(self.use),
            avoid=" and ".join(self.avoid),
            mark=self.mark,
        )

    def criteria(self) -> list[str]:
        """Return 13 to 15 sentences."""
        return [
            says("lines", count=self.lines),
            says("none_empty"),
            *(says("line_words", line=line, count=self.words) for line in range(1, self.lines + 1)),
            says("first_word", word=self.begin),
            *(says("has_word", word=word) for word in self.use),
            *(says("lacks_word", word=word) for word in self.avoid),
            says("last_word", word=self.end),
            says("lines_end", mark=self.mark),
            says("no_capitals"),
            says("no_digits"),
        ]

    def fulfilled_by(self, answer: str) -> bool:
        """Whether the lines have the right words, with one space between them and the mark at the end."""
        line = rf"[a-z]+(?: [a-z]+){{{self.words - 1}}}{re.escape(self.mark)}"
        if not re.fullmatch(rf"{line}(?:\n{line}){{{self.lines - 1}}}", answer.strip()):
            return False
        said = re.findall("[a-z]+", answer)
        placed = said[0] == self.begin and said[-1] == self.end
        return placed and set(self.use) <= set(said) and not set(self.avoid) & set(said)
