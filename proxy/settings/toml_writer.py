"""Write a hone.toml: lines of settings, each below its description as a comment.

Owns: TOML's syntax, and taking each comment from the field of its key. Refuses: choosing settings (`hone init` does),
and any key that no model has.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, get_origin

from pydantic import BaseModel

from proxy.errors import ConfigError
from proxy.settings.descriptions import field_descriptions
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import inner_model

Value = str | int | float | bool | Sequence[str] | Sequence[int]

_WIDTH: Final = 110
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting: its key as a path (`("engine", "base")`), its value, and what was found that led to it.

    `off`: it is written as a comment, ready to be set.
    """

    path: tuple[str, ...]
    value: Value
    found: str = ""
    off: bool = False


def as_toml(head: str, lines: Iterable[SettingLine]) -> str:
    """The text of the file. Lines of one section must be adjacent. Raises ConfigError for a key that is not a
    setting.
    """
    parts = [_comment(head)]
    for section, members in groupby(lines, key=lambda line: line.path[:-1]):
        parts.append("\n".join([f"[{'.'.join(map(_key, section))}]", *map(_setting_text, members)]))
    return "\n\n".join(parts) + "\n"


def toml_lines(path: Sequence[str], value: Value) -> str:
    """Return the lines of one setting: its section, then its value."""
    return f"[{'.'.join(map(_key, path[:-1]))}]\n{_key(path[-1])} = {_value(value)}"


def describe_setting(path: Sequence[str]) -> str:
    """A setting's description; empty inside a table of the user's own. Raises ConfigError for any other key."""
    model: type[BaseModel] | None = HoneSettings
    names = iter(path)
    description = ""
    for name in names:
        field = model.model_fields.get(name) if model is not None else None
        if field is None:
            raise ConfigError(f"{'.'.join(path)!r} is not a setting.")
        assert model is not None
        model, description = inner_model(field.annotation), field_descriptions(model).get(name, "")
        if get_origin(field.annotation) is dict and next(names, None) is not None and model is None:
            return ""  # a table of the user's own, such as the engine's variables
    return " ".join(description.split())


def _setting_text(line: SettingLine) -> str:
    comments = filter(None, [describe_setting(line.path), f"Found: {line.found}" if line.found else ""])
    assignment = f"{_key(line.path[-1])} = {_value(line.value)}"
    return "\n".join([*map(_comment, comments), f"# {assignment}" if line.off else assignment])


def _comment(text: str) -> str:
    paragraphs = (textwrap.wrap(_printable(part), _WIDTH) or [""] for part in text.split("\n"))
    return "\n".join(f"# {row}".rstrip() for rows in paragraphs for row in rows)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Value) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants DEL escaped too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return repr(value)  # TOML's infinity is Python's; JSON's is not
    if isinstance(value, bool | int):
        return json.dumps(value)
    return f"[{', '.join(map(_value, value))}]"


def _printable(text: str) -> str:
    """Text that a comment may hold: what was found may hold anything."""
    return "".join(c if c.isprintable() else " " for c in text)
