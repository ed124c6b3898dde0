"""What a person types into a search, read: words, "a phrase", a beginning*, and -what must not be there.

Owns: that anything can be typed and nothing is a mistake; how a question is spelled for either database. Refuses:
asking it.

    timeout refund          both words
    "was not found"         these words in a row
    refun*                  a word that begins like this (three characters at least, else the word itself)
    refund -order -"a b"    without these
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from recorder.search.words import keys_of

MOST_TERMS: Final = 32  # what comes behind them is not asked: nobody types more
LEAST_BEGINNING: Final = 3  # what begins with one letter is a large part of all words, and takes seconds to find
_TYPED: Final = re.compile(r'(?P<without>(?<!\S)-)?(?:"(?P<phrase>[^"]*)"?(?P<star>\*)?|(?P<plain>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Term:
    """Words in a row; with `begins` the last of them may go on."""

    words: tuple[str, ...]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What must be there, all of it in one turn, and what must not. Without a wanted term it finds nothing."""

    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...]


def read(said: str) -> Query:
    """A query of any text at all."""
    wanted: list[Term] = []
    unwanted: list[Term] = []
    for found in _TYPED.finditer(said):
        typed = found["plain"] if found["plain"] is not None else found["phrase"]
        words = tuple(keys_of(typed))
        if not words:
            continue
        begins = (bool(found["star"]) or typed.endswith("*")) and len(words[-1]) >= LEAST_BEGINNING
        (unwanted if found["without"] else wanted).append(Term(words, begins))
        if len(wanted) + len(unwanted) == MOST_TERMS:
            break
    return Query(tuple(wanted), tuple(unwanted))


def for_fts5(query: Query) -> str:
    """The query in the words of SQLite's FTS5."""
    wanted = " AND ".join(map(_fts5, query.wanted))
    return f"({wanted})" + "".join(f" NOT {_fts5(term)}" for term in query.unwanted)


def for_tsquery(query: Query) -> str:
    """The query in the words of PostgreSQL's tsquery."""
    return " & ".join([_tsquery(term) for term in query.wanted] + [f"!{_tsquery(term)}" for term in query.unwanted])


def _fts5(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + ("*" if term.begins else "")


def _tsquery(term: Term) -> str:
    ends: Sequence[str] = ["", ":*"] if term.begins else ["", ""]
    quoted = [f"'{word}'{ends[at == len(term.words) - 1]}" for at, word in enumerate(term.words)]
    return f"({' <-> '.join(quoted)})"
