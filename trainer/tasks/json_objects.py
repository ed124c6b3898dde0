"""JSON objects of a file with their line numbers: one after another, as in JSONL, or in one array.

Owns: where an object begins and ends, and where a file is not JSON. Raw tabs and line breaks inside strings are
accepted, as exports of tables contain them; an object may span several lines. Refuses: the meaning of an object
(`trainer.tasks.scenarios`), and `NaN` and infinities.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

_ARRAY: Final = re.compile(r"\s*\[\s*(?=[{\]])")  # of objects; any other list is in the place of an object
_BLANK: Final = re.compile(r"\s*")
_OPENED: Final = re.compile(r"[{\[]\s*")
_COLON: Final = re.compile(r"\s*:\s*")
_COMMA: Final = re.compile(r"\s*,\s*")
_REST: Final = re.compile(r"[^\S\n]*")  # of a line


class InvalidObject(ValueError):
    """An object's content is invalid. `key`: where in it, by its `nth` occurrence from 1, if known.

    `entry`: the index in a list at that key, from 1, if it is one.
    """

    def __init__(self, why: str, key: str | None = None, *, nth: int = 1, entry: int | None = None) -> None:
        super().__init__(why)
        self.key = key
        self.nth = nth
        self.entry = entry


class DuplicateKeys(dict[str, Any]):
    """An object with a duplicate key: nothing may depend on which value wins."""

    key = ""


@dataclass(frozen=True, slots=True)
class FileObject:
    """A value of the file: the `number`-th, counted from 1, and the line on which it begins."""

    value: Any
    number: int
    line: int
    source: str = field(repr=False)  # as it is written
    in_array: bool = False
    column: int = 1  # on which it begins, from 1

    @property
    def name(self) -> str:
        """Its name beside its line number: empty if the line is the object."""
        return f"object {self.number}: " if self.in_array or "\n" in self.source else ""

    def line_of(self, fault: InvalidObject) -> int:
        """The line of a fault; that of the object if its key cannot be located."""
        return self.place_of(fault)[0]

    def place_of(self, fault: InvalidObject) -> tuple[int, int]:
        """The line and the column of a fault; those of the object if its key cannot be located."""
        places = [place for key, *place in _keys(self.source) if key == fault.key]
        if len(places) < fault.nth:
            return self.line, self.column
        key, value = places[fault.nth - 1]
        place = key if fault.entry is None else _entry(self.source, value, fault.entry)
        lines = self.source.count("\n", 0, place)
        column = self.column + place if not lines else place - self.source.rindex("\n", 0, place)
        return self.line + lines, column


@dataclass(frozen=True, slots=True)
class FileFault:
    """A place where the file is not JSON."""

    line: int
    why: str


def read_objects(lines: Iterable[bytes]) -> Iterator[FileObject | FileFault]:
    """The contents of a file, in order. In an array nothing is read after a fault; otherwise the next line is."""
    texts: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as e:
            texts.append("")
            yield FileFault(number, f"not UTF-8 (byte {e.start})")
    text = "\n".join(texts)
    array = _ARRAY.match(text)
    yield from _in_array(text, array.end()) if array else _one_after_another(text)


def _one_after_another(text: str) -> Iterator[FileObject | FileFault]:
    lines, number, at = _Lines(text), 0, _past(_BLANK, text, 0)
    while at < len(text):
        number += 1
        found, end = _decoded(text, at, number, lines)
        rest = _past(_REST, text, end)
        if isinstance(found, FileObject) and rest < len(text) and text[rest] != "\n":
            found = FileFault(lines.of(rest), f"not JSON: Extra data (column {lines.column(rest)})")
        if isinstance(found, FileFault):
            end = lines.end_of(at)
        yield found
        at = _past(_BLANK, text, end)


def _in_array(text: str, at: int) -> Iterator[FileObject | FileFault]:
    lines, number = _Lines(text), 0
    if text[at] != "]":
        while True:
            number += 1
            found, end = _decoded(text, at, number, lines, in_array=True)
            yield found
            if isinstance(found, FileFault):
                return
            at = _past(_BLANK, text, end)
            if text[at : at + 1] != ",":
                break
            at = _past(_BLANK, text, at + 1)
    if text[at : at + 1] != "]":
        yield FileFault(lines.of(at), f"not JSON: after object {number} a comma or the array's end is missing")
    elif (rest := _past(_BLANK, text, at + 1)) < len(text):
        yield FileFault(lines.of(rest), "not JSON: something follows the array")


def _decoded(
    text: str, at: int, number: int, lines: _Lines, *, in_array: bool = False
) -> tuple[FileObject | FileFault, int]:
    """The value that begins at a position, and where it ends."""
    line = lines.of(at)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as e:
        where = f"column {e.colno}" if e.lineno == line else f"line {e.lineno}, column {e.colno}"
        return FileFault(line, f"not JSON: {e.msg} ({where})"), at
    except RecursionError:
        return FileFault(line, "nested too deeply"), at
    except ValueError as e:
        return FileFault(line, str(e)), at
    return FileObject(value, number, line, text[at:end], in_array, lines.column(at)), end


class _Lines:
    """The line of a position, without counting from the beginning each time."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._length = len(text)

    def of(self, at: int) -> int:
        return bisect_right(self._starts, at)

    def column(self, at: int) -> int:
        return at - self._starts[self.of(at) - 1] + 1

    def end_of(self, at: int) -> int:
        """The end of a position's line."""
        line = self.of(at)
        return self._starts[line] if line < len(self._starts) else self._length


def _keys(source: str) -> Iterator[tuple[str, int, int]]:
    """The keys of a decoded object, each with its position and that of its value."""
    at = _past(_OPENED, source, 0)
    while source[at : at + 1] == '"' and source[0] == "{":
        key, end = _DECODER.raw_decode(source, at)
        value = _past(_COLON, source, end)
        yield key, at, value
        _, end = _DECODER.raw_decode(source, value)
        at = _past(_COMMA, source, end)


def _entry(source: str, at: int, number: int) -> int:
    """The position of the `number`-th entry of the list at a position."""
    at = _past(_OPENED, source, at)
    for _ in range(number - 1):
        _, end = _DECODER.raw_decode(source, at)
        at = _past(_COMMA, source, end)
    return at


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    doubled, seen = DuplicateKeys(value), set[str]()
    for key, _ in pairs:
        if key in seen:
            doubled.key = key
            break
        seen.add(key)
    return doubled


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(strict=False, object_pairs_hook=_pairs, parse_constant=_refuse_constant)
