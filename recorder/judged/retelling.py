"""A text written down by another one to which it is nearly equal: line by line, but for words that stand for others.

Owns: writing it so, and reading it back to the character. Refuses: which texts these are (`recorder.judged.prompts`).

A line that the other text does not have, with these words put in, is kept as it is: whatever two texts are, what is
read back is what was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Words = Mapping[str, str]  # a word of the first text → what stands in its place in the other
Line = int | str  # the number of a line of the first text, or a line of its own


def retell(text: str, first: str, words: Words) -> list[Line]:
    """The lines of a text by those of the first one."""
    at = {line: number for number, line in enumerate(_put_in(first, words).split("\n"))}
    return [at.get(line, line) for line in text.split("\n")]


def read(lines: Sequence[Line], first: str, words: Words) -> str:
    """The text that `retell` made these lines of."""
    own = _put_in(first, words).split("\n")
    return "\n".join(line if isinstance(line, str) else own[line] for line in lines)


def _put_in(text: str, words: Words) -> str:
    """The text with all words replaced at once, so that none is replaced twice; a longer one before a shorter."""
    if not words:
        return text
    known = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(known, lambda found: words[found[0]], text)
