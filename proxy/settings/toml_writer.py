"""A hone.toml as text: lines of settings, each below what its model says of it.

Owns: TOML's spelling, and taking each comment from the field that the key names. Refuses: which settings to write
(`hone init` says), and any key that no model has.
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
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import inner_model

Value = str | int | float | bool | Sequence[str]

_WIDTH: Final = 110
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting: its key as a path (`("engine", "base")`), its value, and what was found that made it so.

    `off`: written as a comment, for whoever wants to set it.
    """

    path: tuple[str, ...]
    value: Value
    found: str = ""
    off: bool = False


def as_toml(head: str, lines: Iterable[SettingLine]) -> str:
    """The file. Lines of one section follow each other. Raises ConfigError for a key that is no setting."""
    parts = [_comment(head)]
    for section, members in groupby(lines, key=lambda line: line.path[:-1]):
        parts.append("\n".join([f"[{'.'.join(map(_key, section))}]", *map(_told, members)]))
    return "\n\n".join(parts) + "\n"


def describe_setting(path: Sequence[str]) -> str:
    """What a setting's model says of it; nothing for what is a user's own. Raises ConfigError for no setting."""
    model: type[BaseModel] | None = HoneSettings
    names = iter(path)
    description = ""
    for name in names:
        field = model.model_fields.get(name) if model is not None else None
        if field is None:
            raise ConfigError(f"{'.'.join(path)!r} is no setting.")
        model, description = inner_model(field.annotation), field.description or ""
        if get_origin(field.annotation) is dict and next(names, None) is not None and model is None:
            return ""  # a table of the user's own, such as the engine's variables
    return " ".join(description.split())


def _told(line: SettingLine) -> str:
    said = filter(None, [describe_setting(line.path), f"Found: {line.found}" if line.found else ""])
    assignment = f"{_key(line.path[-1])} = {_value(line.value)}"
    return "\n".join([*map(_comment, said), f"# {assignment}" if line.off else assignment])


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
