"""A JSON object: given keys in their order, each with a value of its type.

Owns: its prompt, its criteria, and the definition of a right object. Refuses: flawed answers.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

from examples.rlvr.forms.form import Form
from examples.rlvr.kinds import says
from examples.rlvr.words import LIST_KEYS, LISTS, NUMBER_KEYS, TEXT_KEYS, TRUTH_KEYS

_READ: Final = re.compile(r"Write JSON, keys in this order\. (.+)")
_FIELD: Final = re.compile(
    r"(?P<key>\w+): (?:text \"(?P<text>\w+)\"|number from (?P<low>\d+) to (?P<high>\d+)|(?P<truth>true|false)"
    r"|list of (?P<count>\d) with \"(?P<word>\w+)\")\."
)


@dataclass(frozen=True, slots=True)
class Range:
    """A whole number in a range."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Several:
    """A list of a given length, with one given text."""

    count: int
    word: str


@dataclass(frozen=True, slots=True)
class Field:
    """A key and its required value."""

    key: str
    wanted: str | bool | Range | Several

    def asked(self) -> str:
        """Return the field's part of the prompt."""
        match self.wanted:
            case bool():
                return f"{self.key}: {json.dumps(self.wanted)}."
            case str():
                return f'{self.key}: text "{self.wanted}".'
            case Several(count, word):
                return f'{self.key}: list of {count} with "{word}".'
            case Range(low, high):
                return f"{self.key}: number from {low} to {high}."

    def criteria(self) -> list[str]:
        """Return sentences on its value."""
        match self.wanted:
            case bool():
                return [says(json.dumps(self.wanted), key=self.key)]
            case str():
                return [says("text", key=self.key, word=self.wanted)]
            case Several(count, word):
                return [says("list", key=self.key, count=count), says("in_list", key=self.key, word=word)]
            case Range(low, high):
                return [says("whole", key=self.key), says("within", key=self.key, low=low, high=high)]

    def holds(self, value: Any) -> bool:
        """Whether a value is the required one."""
        match self.wanted:
            case bool():
                return value is self.wanted
            case str():
                return bool(value == self.wanted)
            case Several(count, word):
                return isinstance(value, list) and len(value) == count and word in value and _all_words(value)
            case Range(low, high):
                return type(value) is int and low <= value <= high


@dataclass(frozen=True, slots=True)
class Record(Form):
    """Three or four fields, in this order."""

    fields: tuple[Field, ...]

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """Return 3 or 4 of the four kinds of fields, in any order."""
        low = rng.randint(1, 5)
        kinds = [
            Field(rng.choice(TEXT_KEYS), rng.choice(LISTS[6])),
            Field(rng.choice(NUMBER_KEYS), Range(low, low + rng.randint(2, 4))),
            Field(rng.choice(TRUTH_KEYS), rng.random() < 0.5),
            Field(rng.choice(LIST_KEYS), Several(rng.randint(2, 4), rng.choice(LISTS[7]))),
        ]
        return cls(tuple(rng.sample(kinds, rng.randint(3, 4))))

    @classmethod
    def read(cls, prompt: str) -> Self | None:
        """Parse a prompt; None if it asks for no JSON object."""
        if (found := _READ.fullmatch(prompt.strip())) is None:
            return None
        form = cls(tuple(_field(one) for one in _FIELD.finditer(found[1])))
        return form if form.prompt() == prompt.strip() else None  # an unknown part is never skipped

    def prompt(self) -> str:
        """Return the prompt."""
        return " ".join(["Write JSON, keys in this order.", *(one.asked() for one in self.fields)])

    def criteria(self) -> list[str]:
        """Return 11 to 15 sentences."""
        keys = [field.key for field in self.fields]
        return [
            says("object"),
            says("keys", count=len(keys)),
            *(says("key", key=key) for key in keys),
            *(says("key_order", first=a, second=b) for a, b in pairwise(keys)),
            *(sentence for field in self.fields for sentence in field.criteria()),
        ]

    def fulfilled_by(self, answer: str) -> bool:
        """Whether the object has exactly these keys, in this order, each with its required value."""
        try:
            pairs = json.loads(answer, object_pairs_hook=tuple)
        except (ValueError, RecursionError):
            return False
        if not answer.strip().startswith("{") or [key for key, _ in pairs] != [field.key for field in self.fields]:
            return False
        return all(field.holds(value) for field, (_, value) in zip(self.fields, pairs, strict=True))


def _field(found: re.Match[str]) -> Field:
    if found["text"]:
        return Field(found["key"], found["text"])
    if found["low"]:
        return Field(found["key"], Range(int(found["low"]), int(found["high"])))
    if found["truth"]:
        return Field(found["key"], found["truth"] == "true")
    return Field(found["key"], Several(int(found["count"]), found["word"]))


def _all_words(value: list[Any]) -> bool:
    return all(isinstance(one, str) and re.fullmatch("[a-z]+", one) for one in value)
