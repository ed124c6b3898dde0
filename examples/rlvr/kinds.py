"""Kinds of criteria: the sentence of each, and the check of a text against it.

Owns: the table. Each sentence is here once, with a place for each argument; `says` fills it, `read` parses it. Refuses:
prompts (`examples.rlvr.forms`), a judge's verdicts (`examples.rlvr.scripted_judge`), and unknown sentences: `read`
returns None and never guesses.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d+")
_LAST_NUMBER: Final = re.compile(r"(?<!\d)(\d{1,18})$")  # Python refuses to read numbers of thousands of digits
_PLACE: Final = re.compile(r"\{(\w+)(?::(\w))?\}")


class Text:
    """An answer for the checks: its lines, its words, and its JSON object, if it is one."""

    def __init__(self, answer: str) -> None:
        """Surrounding white space is removed."""
        self.whole = answer.strip()
        self.lines = self.whole.split("\n")

    @cached_property
    def words(self) -> list[str]:
        """Runs of letters, in order."""
        return words(self.whole)

    @cached_property
    def pairs(self) -> list[tuple[str, Any]]:
        """Keys and values of the JSON object in order, duplicate keys twice; empty if the answer is no object."""
        try:
            found = json.loads(self.whole, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return []
        return found.pairs if isinstance(found, _Pairs) else []

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the JSON object in their order."""
        return [key for key, _ in self.pairs]

    def value(self, key: str) -> Any:
        """Return the value of a key; None if the key is missing or duplicate."""
        return next((value for name, value in self.pairs if name == key), None) if self.keys.count(key) == 1 else None

    def line(self, number: int) -> str:
        """Return a line by its number from 1; an empty string if there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def last_numbers(self) -> list[int]:
        """The whole number at the end of each line that has one."""
        return [int(found[1]) for line in self.lines if (found := _LAST_NUMBER.search(line))]


class _Pairs:
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def words(text: str) -> list[str]:
    """Runs of letters, in order."""
    return _WORD.findall(text)


@dataclass(frozen=True, slots=True)
class Kind:
    """A sentence with places for arguments, and the check of a text with these arguments."""

    sentence: str
    check: Callable[..., bool]

    def says(self, **arguments: Any) -> str:
        """Return the sentence with these arguments."""
        return self.sentence.format(**arguments)


@dataclass(frozen=True, slots=True)
class Criterion:
    """A parsed sentence."""

    kind: str
    arguments: dict[str, Any]

    def met_by(self, text: Text) -> bool:
        """Whether it is true of a text."""
        return KINDS[self.kind].check(text, **self.arguments)


def says(kind: str, **arguments: Any) -> str:
    """The sentence of a kind."""
    return KINDS[kind].says(**arguments)


@functools.lru_cache(maxsize=4096)  # a campaign has a few hundred different sentences, which repeat
def read(sentence: str) -> Criterion | None:
    """Parse a criterion; None if it is no sentence of the table."""
    for name, pattern in _patterns().items():
        if found := pattern.fullmatch(sentence.strip()):
            arguments = {
                key: int(value) if _NUMBER.fullmatch(value) else value for key, value in found.groupdict().items()
            }
            return Criterion(name, arguments)
    return None


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """A sentence's pattern: `{name:d}` is a whole number, `{name}` a text without quotes."""
    return {name: re.compile(_pattern(kind.sentence)) for name, kind in KINDS.items()}


def _pattern(sentence: str) -> str:
    parts, at = [], 0
    for place in _PLACE.finditer(sentence):
        inside = "[0-9]{1,6}" if place[2] else '[^"]{1,60}'
        parts += [re.escape(sentence[at : place.start()]), f"(?P<{place[1]}>{inside})"]
        at = place.end()
    return "".join(parts) + re.escape(sentence[at:])


def _line_words(text: Text, line: int, count: int) -> bool:
    return len(words(text.line(line))) == count


def _numbers_in(text: Text, step: Callable[[int, int], bool]) -> bool:
    numbers = text.last_numbers()
    return len(numbers) == len(text.lines) > 1 and all(step(a, b) for a, b in pairwise(numbers))


def _before(text: Text, first: str, second: str) -> bool:
    keys = text.keys
    return first in keys and second in keys and keys.index(first) < keys.index(second)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _within(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _texts(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


KINDS: Final[dict[str, Kind]] = {
    "lines": Kind("The answer has exactly {count:d} lines.", lambda t, count: len(t.lines) == count),
    "none_empty": Kind("No line of the answer is empty.", lambda t: all(line.strip() for line in t.lines)),
    "line_words": Kind("Line {line:d} has exactly {count:d} words.", _line_words),
    "first_word": Kind('The first word of the answer is "{word}".', lambda t, word: t.words[:1] == [word]),
    "last_word": Kind('The last word of the answer is "{word}".', lambda t, word: t.words[-1:] == [word]),
    "has_word": Kind('The word "{word}" is in the answer.', lambda t, word: word in t.words),
    "lacks_word": Kind('The word "{word}" is not in the answer.', lambda t, word: word not in t.words),
    "line_word": Kind('The word "{word}" is in line {line:d}.', lambda t, word, line: word in words(t.line(line))),
    "line_begins": Kind(
        'Line {line:d} begins with "{mark}".', lambda t, line, mark: t.line(line).startswith(str(mark))
    ),
    "lines_end": Kind('Every line ends with "{mark}".', lambda t, mark: all(x.endswith(str(mark)) for x in t.lines)),
    "no_capitals": Kind("The answer has no capital letter.", lambda t: not any(c.isupper() for c in t.whole)),
    "no_digits": Kind("The answer has no digit.", lambda t: not any(c.isdigit() for c in t.whole)),
    "end_numbers": Kind("Every line ends with a whole number.", lambda t: len(t.last_numbers()) == len(t.lines)),
    "rise": Kind(
        "The numbers at the ends of the lines rise from line to line.", lambda t: _numbers_in(t, lambda a, b: a < b)
    ),
    "fall": Kind(
        "The numbers at the ends of the lines fall from line to line.", lambda t: _numbers_in(t, lambda a, b: a > b)
    ),
    "object": Kind("The answer is one JSON object and nothing else.", lambda t: bool(t.pairs)),
    "keys": Kind("The JSON object has exactly {count:d} keys.", lambda t, count: len(t.keys) == count),
    "key": Kind('The JSON object has the key "{key}".', lambda t, key: key in t.keys),
    "key_order": Kind('The key "{first}" comes before the key "{second}".', _before),
    "text": Kind('The value of "{key}" is the text "{word}".', lambda t, key, word: t.value(key) == word),
    "whole": Kind('The value of "{key}" is a whole number.', lambda t, key: _whole(t.value(key))),
    "within": Kind(
        'The value of "{key}" is a number from {low:d} to {high:d}.',
        lambda t, key, low, high: _within(t.value(key), low, high),
    ),
    "true": Kind('The value of "{key}" is true.', lambda t, key: t.value(key) is True),
    "false": Kind('The value of "{key}" is false.', lambda t, key: t.value(key) is False),
    "list": Kind(
        'The value of "{key}" is a list of exactly {count:d} texts.',
        lambda t, key, count: len(_texts(t.value(key)) or ()) == count,
    ),
    "in_list": Kind(
        'The list "{key}" holds the text "{word}".', lambda t, key, word: word in (_texts(t.value(key)) or ())
    ),
}
