"""The form of a list's filters, and the addresses of its pages.

Owns: which fields there are, what each shows and offers. Refuses: what a word means (`recorder.listing.words`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from proxy.api.lists import Asked
from recorder.listing.words import Word

# Where the word alone would not say it to somebody who sees it for the first time.
_LABELS: Final = {"source": "attributed by", "reason": "left out by reason", "tool_error": "tool errors"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field. With `options` it is chosen from; `several` of them may be."""

    name: str
    label: str
    about: str
    values: Sequence[str]
    options: Sequence[str]
    several: bool

    @property
    def value(self) -> str:
        """What it shows where one value is all that it takes."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True, slots=True)
class Filters:
    """A list's form as it was sent, and where its pages lie."""

    path: str
    asked: Asked
    fields: Sequence[Field]

    @property
    def used(self) -> bool:
        """Whether the list is narrowed at all."""
        return bool(self.asked.said)

    @property
    def folded(self) -> bool:
        """Whether none of the fields below the search is used."""
        return all(name == "said" for name, _ in self.asked.said)

    @property
    def said(self) -> str:
        """What is searched for."""
        return next((value for name, value in self.asked.said if name == "said"), "")

    def address(self, before: str | None = None) -> str:
        """The page of these filters that begins before an id; without one, the newest."""
        said = [*self.asked.said, *([] if before is None else [("before", before)])]
        return f"{self.path}?{urlencode(said)}" if said else self.path


def filters(path: str, asked: Asked, words: Mapping[str, Word], offered: Mapping[str, Sequence[str]]) -> Filters:
    """The form of a list; `offered`: the values that there are, by word."""
    fields = [_field(word, asked, offered.get(word.name, ())) for word in words.values() if word.name != "said"]
    return Filters(path, asked, sorted(fields, key=lambda field: not (field.several and field.options)))


def _field(word: Word, asked: Asked, offered: Sequence[str]) -> Field:
    values = [value for name, value in asked.said if name == word.name]
    options = word.takes or offered
    missing = [value for value in values if options and value not in options]  # asked for, and there is none now
    label = _LABELS.get(word.name) or word.name.replace("_", " ")
    return Field(word.name, label, word.about, values, [*options, *missing], word.many)


def tidied(path: str, query: Sequence[tuple[str, str]]) -> str | None:
    """The address without the fields that a form sends empty; None: it is so already."""
    kept = [(name, value.strip()) for name, value in query if value.strip()]
    if len(kept) == len(query):
        return None
    return f"{path}?{urlencode(kept)}" if kept else path
