"""docs/settings.md: every key of hone.toml, from the models that check it.

Owns: the text for types, units and defaults. Refuses: the meaning of a setting, which is its field's docstring.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from proxy.settings.descriptions import field_descriptions
from proxy.settings.hone import HoneSettings
from scripts.pages.table import code, table

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
_HEAD = """\
# Settings

**For:** operators who write hone.toml. **You will have:** every key, its type, its default and its meaning.

A file needs only the values that differ from the defaults; it may be empty or missing. `hone config` shows the values
in force and where each came from. `hone config judge` shows those of a section, with descriptions.

- **Sources**: `hone.toml` (`--config`, or `HONE_CONFIG`, else the one in the working directory). Environment variables
  override the file, and flags override both. All three override a preset (`campaign.preset`).
- **Variables**: `HONE_`, then the key in capitals with `__` for each dot: `HONE_JUDGE__MODEL`,
  `HONE_PROXY__PORT`. Lists and tables are written as JSON.
- **Paths** in the file are relative to the file; paths in variables and flags are relative to the working directory.
- **Units** are in the name: `_s` seconds, `_days` days, `_bytes` bytes, `_chars` characters.
- **Changes at run time** override all of these ([below](#changes-at-run-time)).
- **Unknown keys** are errors that name the nearest known key.

(Made from the models by `python -m scripts.pages --write`.)

## Changes at run time

These settings change while programs run: of `[learn]` `paused`, `steps_per_hour`, `judge_tokens_per_day`,
`judge_usd_per_day`, `hours` and `max_age_s`; of an alias `promote`, `canary_share`, `holdback_share` and
`sampling.override`. With keys, that needs the scope `admin`; `hone config` works on the store itself.

| where | change | undo |
|---|---|---|
| the page Settings | *change…* beside the setting | *Undo* |
| [`/hone/v1`](api.md) | `PUT /hone/v1/settings/learn.steps_per_hour` with `{"value": 4}` | `DELETE` of the same path |
| a terminal | `hone config learn.hours --set 22:00-06:00` (`--set ''`: not set) | `hone config learn.hours --undo` |

The proxy with its workers, the judge, the learner and `hone up` follow within 250 ms. A change wins over `hone.toml`,
variables and flags, also after a restart, until it is undone; `hone config` and the page show its origin as `page`. The
store has every change: who, when, the value before and after (`GET /hone/v1/setting-changes`). Hone never writes
`hone.toml`: the page shows the lines to paste. Every other setting needs a restart.

- A new `promote` decides a version that waits at its gate. A new `canary_share` moves a running canary, unless a person
  gave it a share.
- A change whose alias is gone from the settings, or whose value no longer fits, does not apply; the page says why.
"""
_WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    SecretStr: "secret text",
    NoneType: "none",
}
_UNITS: Final = {"_s": "seconds", "_days": "days", "_bytes": "bytes", "_chars": "characters", "_tokens": "tokens"}
_BOUNDS: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True, slots=True)
class Section:
    """One table of hone.toml: its dotted name, `NAME` where the user gives one; `many`: it is a list of tables."""

    name: str
    model: type[BaseModel]
    many: bool = False

    @property
    def title(self) -> str:
        """Return the heading as hone.toml writes it."""
        return f"[[{self.name}]]" if self.many else f"[{self.name}]" if self.name else "At the top"

    @property
    def anchor(self) -> str:
        """Return the anchor for links."""
        return self.name.replace(".", "").lower()  # of the heading, as GitHub and mkdocs both make it

    def key(self, field: str) -> str:
        """Return the dotted key of one of its fields."""
        return f"{self.name}.{field}" if self.name else field


def sections(model: type[BaseModel] = HoneSettings, name: str = "", many: bool = False) -> Iterator[Section]:
    """Yield a model's table and those below it, in the models' order."""
    here = Section(name, model, many)
    yield here
    for field, info in model.model_fields.items():
        if (below := _below(here.key(field), info)) is not None:
            yield from sections(below.model, below.name, below.many)


def page() -> str:
    """Return the whole page."""
    first: dict[type[BaseModel], Section] = {}
    parts = [_HEAD]
    for section in sections():
        parts += _chapter(section, first.setdefault(section.model, section))
    return "\n".join(parts)


def _chapter(section: Section, first: Section) -> Iterator[str]:
    """Yield a section's part of the page. `first`: the section that lists its keys, where several have the same."""
    yield f"## {_heading(section)}\n"
    if first is not section:
        yield f"The same keys as [{code(first.title)}](#{first.anchor}).\n"
        return
    yield f"{_first(section)}\n"
    rows = [_row(section, field, info) for field, info in section.model.model_fields.items()]
    yield table(["key", "type", "default", "what it is"], rows)


def _heading(section: Section) -> str:
    return code(section.title) if section.name else section.title


def _first(section: Section) -> str:
    return " ".join((section.model.__doc__ or "").split()) if section.name else "Keys without a section."


def _row(section: Section, field: str, info: FieldInfo) -> list[str]:
    description = field_descriptions(section.model).get(field)
    if description is None:
        raise ValueError(f"{section.key(field)} has no docstring: say there what it is")
    below = _below(section.key(field), info)
    kind = f"[{code(below.title)}](#{below.anchor})" if below else _kind(field, info)
    return [code(field), kind, "" if below else _default(section.key(field), info), description]


def _below(key: str, info: FieldInfo) -> Section | None:
    """Return the section of a field that is a table, or a list or dictionary of tables; None for any other field."""
    for part in _parts(info.annotation):
        origin, inner = get_origin(part), get_args(part)
        if _is_model(part):
            return Section(key, part)
        if origin is dict and _is_model(inner[1]):
            return Section(f"{key}.NAME", inner[1])
        if origin is list and _is_model(inner[0]):
            return Section(key, inner[0], many=True)
    return None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the types that an annotation allows. `Annotated` with only a check counts as its type."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for part in get_args(annotation) for inner in _parts(part))
    if hasattr(annotation, "__metadata__"):
        return _parts(annotation.__origin__)
    return (annotation,)


def _kind(field: str, info: FieldInfo) -> str:
    kinds = [_type_name(part) for part in _parts(info.annotation) if part is not NoneType]
    unit = next((unit for suffix, unit in _UNITS.items() if field.endswith(suffix)), None)
    return ", ".join([" or ".join(kinds), *_bounds(info), *([unit] if unit else [])])


def _type_name(part: Any) -> str:
    origin, inner = get_origin(part), get_args(part)
    if origin is Literal:
        return ", ".join(code(_toml(value)) for value in inner)
    if origin is list:
        return f"list of {_type_name(inner[0])}"
    if origin is dict:
        return "table"
    return _WORDS.get(part, "any value")


def _bounds(info: FieldInfo) -> Iterator[str]:
    for limit in info.metadata:
        for name, sign in _BOUNDS.items():
            if (value := getattr(limit, name, None)) is not None:
                yield f"{sign} {value:g}" if isinstance(value, float) else f"{sign} {value}"


def _default(key: str, info: FieldInfo) -> str:
    if info.is_required():
        return "must be given"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, str) and "\n" in value:
        return f"its text: `hone config {key}`"
    return code(_toml(value))


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
