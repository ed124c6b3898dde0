"""Split text into search words, the same for both databases, and parse search queries.

Owns: where a word begins and ends, when two words are equal, and the spelling of a query for either database. Any input
is a valid query. Refuses: which text is searched, and running queries.

A word is a sequence of letters and digits. Case, width and form of a letter do not matter (NFKC); accents do. Scripts
without spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) are searched by character: each is a
word, and characters without a space between them are a phrase.

    timeout refund          both words
    "was not found"         these words in a row
    refun*                  a word with this prefix (at least three characters, else the word itself)
    refund -order -"a b"    without these
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 64  # characters of a word that count; longer words with the same beginning are equal
# Between two messages of a document, so that no phrase spans both. No query can contain it.
_BREAK: Final = "\N{MIDDLE DOT}"
_MOST_PLACES: Final = 16_383  # PostgreSQL's highest position

_SPACELESS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
_WORD: Final = re.compile(f"[{_SPACELESS}]|[^\\W_{_SPACELESS}]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: its search key and its position."""

    key: str
    start: int
    end: int


def compose_text(text: str) -> str:
    """Return the text with each letter and its accents as one character: positions of words count in this form."""
    return unicodedata.normalize("NFC", text)


def split_words(text: str) -> Iterator[Word]:
    """Return the words of a composed text, in order."""
    for found in _WORD.finditer(text):
        key = _key(found.group())
        if key:
            yield Word(key, found.start(), found.end())


def word_keys(text: str) -> list[str]:
    """Return the search keys of a text's words, in order."""
    return [word.key for word in split_words(compose_text(text))]


def fts5_line(texts: Sequence[Sequence[str]]) -> str:
    """Return the words of some texts in the form of SQLite's tokenizer `ascii`: separated by spaces."""
    return f" {_BREAK} ".join(" ".join(words) for words in texts)


def tsvector_text(texts: Sequence[Sequence[str]]) -> str:
    """Return the words of some texts in the form of PostgreSQL's tsvector: each with its positions."""
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


MOST_TERMS: Final = 32  # further terms are ignored
LEAST_BEGINNING: Final = 3  # a prefix of one letter matches too many words, and takes seconds
_TYPED: Final = re.compile(r'(?P<without>(?<!\S)-)?(?:"(?P<phrase>[^"]*)"?(?P<star>\*)?|(?P<plain>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Term:
    """Consecutive words. `begins`: the last of them is a prefix."""

    words: tuple[str, ...]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """The required and the excluded terms of a search. Without a required term nothing matches."""

    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...]


def parse_query(said: str) -> Query:
    """Parse any text as a query."""
    wanted: list[Term] = []
    unwanted: list[Term] = []
    for found in _TYPED.finditer(said):
        typed = found["plain"] if found["plain"] is not None else found["phrase"]
        words = tuple(word_keys(typed))
        if not words:
            continue
        begins = (bool(found["star"]) or typed.endswith("*")) and len(words[-1]) >= LEAST_BEGINNING
        (unwanted if found["without"] else wanted).append(Term(words, begins))
        if len(wanted) + len(unwanted) == MOST_TERMS:
            break
    return Query(tuple(wanted), tuple(unwanted))


def fts5_query(query: Query) -> str:
    """Return the query in the syntax of SQLite's FTS5."""
    wanted = " AND ".join(map(_fts5, query.wanted))
    return f"({wanted})" + "".join(f" NOT {_fts5(term)}" for term in query.unwanted)


def tsquery_text(query: Query) -> str:
    """Return the query in the syntax of PostgreSQL's tsquery."""
    return " & ".join([_tsquery(term) for term in query.wanted] + [f"!{_tsquery(term)}" for term in query.unwanted])


def _fts5(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + ("*" if term.begins else "")


def _tsquery(term: Term) -> str:
    ends: Sequence[str] = ["", ":*"] if term.begins else ["", ""]
    quoted = [f"'{word}'{ends[at == len(term.words) - 1]}" for at, word in enumerate(term.words)]
    return f"({' <-> '.join(quoted)})"
