"""Laying changes over settings: pure functions from settings and values to new settings.

Owns: one value laid over, by the models that read hone.toml, and what happens to a value that no longer fits. The given
settings are never changed. Refuses: storing (`recorder.setting_changes.change_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings
from proxy.settings.value_errors import describe_value_error
from recorder.errors import NotFound, SettingInvalid
from recorder.setting_changes.changeable_settings import setting_path

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Overlay:
    """Settings under changes. `refused`: by key, why a change does not apply: its alias is gone, or its value."""

    settings: HoneSettings
    refused: Mapping[str, str]


def lay_over(settings: HoneSettings, values: Mapping[str, Any]) -> Overlay:
    """Return the settings with these values, by dotted key. One that does not fit is left out, and the others apply."""
    refused: dict[str, str] = {}
    for key in sorted(values):
        try:
            settings = change_value(settings, key, values[key])
        except (NotFound, SettingInvalid) as e:
            refused[key] = str(e)
    return Overlay(settings, refused)


def change_value(settings: HoneSettings, key: str, value: Any) -> HoneSettings:
    """Return the settings with one value.

    Raises NotFound for a setting that does not change at run time or an unknown alias, and SettingInvalid with
    hone.toml's message for a value that the setting does not accept.
    """
    section, *path = setting_path(key)
    if section == "learn":
        return settings.model_copy(update={"learn": _changed(settings.learn, path, value, (section,))})
    aliases = given_aliases(settings)
    name = path.pop(0)
    one = _changed(_known(aliases, name), path, value, (section, name))
    return settings.model_copy(update={"aliases": {**aliases, name: one}})


def value_at(settings: HoneSettings, key: str) -> Any:
    """Return the value of a setting that changes at run time: JSON. Raises NotFound."""
    section, *path = setting_path(key)
    found: Any = settings.learn if section == "learn" else _known(given_aliases(settings), path.pop(0))
    for name in path:
        found = getattr(found, name)
    return found


def given_aliases(settings: HoneSettings) -> dict[str, AliasSettings]:
    """Return the aliases as hone.toml has them; without any, the one that is named like the engine's base."""
    return settings.aliases or {name: AliasSettings() for name in settings.declared_aliases()}


def _known(aliases: Mapping[str, AliasSettings], name: str) -> AliasSettings:
    if name not in aliases:
        raise NotFound(f"the settings have no alias {name[:200]!r}: there are {', '.join(sorted(aliases)) or 'none'}.")
    return aliases[name]


def _changed(model: M, path: Sequence[str], value: Any, above: tuple[str, ...]) -> M:
    """The model with the value at a path. `above`: the keys of the model itself."""
    name, *rest = path
    given = _changed(getattr(model, name), rest, value, (*above, name)) if rest else value
    fields = {one: getattr(model, one) for one in type(model).model_fields}
    try:
        checked = type(model).model_validate({**fields, name: given})
    except ValidationError as e:
        said = [
            describe_value_error(".".join((*above, *map(str, error["loc"]))), error, error["input"])
            for error in e.errors()
        ]
        raise SettingInvalid("\n".join(dict.fromkeys(said))) from e
    return model.model_copy(update={name: getattr(checked, name)})
