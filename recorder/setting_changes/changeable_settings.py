"""Which settings change at run time, by their dotted keys, and the values that a choice allows.

Owns: the list. A setting is here if every program reads it at the moment of use. Refuses: values
(`recorder.setting_changes.overlay`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, SamplingOverride
from recorder.errors import NotFound
from recorder.settings import LearnSettings

PAGE: Final = "page"  # the origin of a value that was changed at run time; it wins over all others
PAUSED: Final = "learn.paused"
_LEARN: Final = ("paused", "steps_per_hour", "judge_tokens_per_day", "judge_usd_per_day", "hours", "max_age_s")
_ALIAS: Final = (
    "promote",
    "canary_share",
    "holdback_share",
    *(f"sampling.override.{name}" for name in SamplingOverride.model_fields),
)


def setting_path(key: str) -> tuple[str, ...]:
    """Return a key as a path: `aliases.org/a.b.promote` → (`aliases`, `org/a.b`, `promote`).

    Raises NotFound for a setting that does not change at run time.
    """
    section, _, rest = key.partition(".")
    if section == "learn" and rest in _LEARN:
        return section, rest
    if section == "aliases":
        for leaf in _ALIAS:
            name = rest.removesuffix(f".{leaf}")
            if name and name != rest:
                return section, name, *leaf.split(".")
    raise NotFound(
        f"{key[:200]!r} is no setting that changes at run time: set it in hone.toml. These change: "
        f"{', '.join(f'learn.{name}' for name in _LEARN)}; aliases.NAME.{', .'.join(_ALIAS[:3])} and "
        ".sampling.override.NAME."
    )


def list_changeable(settings: HoneSettings) -> list[str]:
    """Return the keys of the settings that change at run time: those of `[learn]`, then those of each alias."""
    return [*(f"learn.{name}" for name in _LEARN), *_of_aliases(settings)]


def _of_aliases(settings: HoneSettings) -> Iterator[str]:
    for name in settings.declared_aliases():
        yield from (f"aliases.{name}.{leaf}" for leaf in _ALIAS)


def allowed_values(key: str) -> tuple[str, ...]:
    """Return the values of a setting that is a choice; empty for a number or a text. Raises NotFound."""
    section, *names = setting_path(key)
    model: type[BaseModel] = LearnSettings if section == "learn" else AliasSettings
    annotation: Any = None
    for name in names if section == "learn" else names[1:]:
        annotation = model.model_fields[name].annotation
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else model
    if annotation is bool:
        return ("true", "false")
    return tuple(get_args(annotation)) if get_origin(annotation) is Literal else ()
