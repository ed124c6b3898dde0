"""A text as the words by which it is found, the same for both databases.

Owns: where a word begins and ends, and when two are one. Refuses: what is searched, and how a database keeps it.

A word is a row of letters and digits; upper and lower case are one, as are the widths and forms of a letter (NFKC).
Accents tell words apart. What is written without spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer,
Burmese) is searched by its characters: each is a word of its own, and what a person types together is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 64  # characters of a word that count: what is longer is no word, and two such that begin alike are one
# Between two messages of a document, so that no phrase runs from one into the next. No query can name it.
_BREAK: Final = "\N{MIDDLE DOT}"
_MOST_PLACES: Final = 16_383  # PostgreSQL counts no further

_SPACELESS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
_WORD: Final = re.compile(f"[{_SPACELESS}]|[^\\W_{_SPACELESS}]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: by what it is found, and where it stands."""

    key: str
    start: int
    end: int


def composed(text: str) -> str:
    """The text with letters and their accents as one character each: the form that words are counted in."""
    return unicodedata.normalize("NFC", text)


def words_in(text: str) -> Iterator[Word]:
    """The words of a composed text, in order."""
    for found in _WORD.finditer(text):
        key = _key(found.group())
        if key:
            yield Word(key, found.start(), found.end())


def keys_of(text: str) -> list[str]:
    """By what the words of a text are found, in order."""
    return [word.key for word in words_in(composed(text))]


def as_line(texts: Sequence[Sequence[str]]) -> str:
    """The words of some texts as SQLite's tokenizer `ascii` takes them: with spaces between."""
    return f" {_BREAK} ".join(" ".join(words) for words in texts)


def as_vector(texts: Sequence[Sequence[str]]) -> str:
    """The words of some texts as PostgreSQL reads a tsvector: each with its places."""
    places: dict[str, list[str]] = {}
    place = 0
    for words in texts:
        for word in words:
            place += 1
            places.setdefault(word, []).append(str(min(place, _MOST_PLACES)))
        place += 1
    return " ".join(f"'{word}':{','.join(at)}" for word, at in places.items())


def _key(word: str) -> str:
    if word.isascii():
        return word[:LONGEST].lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())
    return "".join(c for c in folded if c.isalnum())[:LONGEST]
