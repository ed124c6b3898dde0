"""Reading all settings. Flags override `HONE_…` environment variables, these override hone.toml, and it a preset.

Owns: the order of the sources, the source of each value, renamed keys, presets (`campaign.preset`), and errors that
name the file, the key and the nearest known key. Refuses: which settings there are (`proxy.settings.hone`).

Paths in the file are relative to the file; paths in variables and flags are relative to the working directory.
docs/tasks.md lists the values of each preset; a test compares it with `PRESETS`.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError

from proxy.errors import ConfigError
from proxy.settings.display import display_value, list_leaves
from proxy.settings.hone import ENV_PREFIX, NESTED, HoneSettings, LoadedSettings
from proxy.settings.value_errors import describe_value_error
from trainer.settings import RECIPES

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "rlvr": {
        "trainer.rank": 32,
        "trainer.lr": 4e-5,
        "trainer.kl_coef": 0.0,
        "trainer.substeps": 1,
        "campaign.agent": "hone:answer",
        "campaign.group_size": 8,
        "campaign.scenarios_per_step": 32,
        "campaign.max_tokens": 2048,
        "campaign.temperature": 1.0,
        "campaign.seed": 42,
        "campaign.val_every": 10,
        "judge.rewards": [{"kind": "rubric"}],
        "judge.retries": 3,
        "judge.temperature": 0.0,
    },
}


FILE_NAME = "hone.toml"
# Variables that Hone reads or gives to agents, and that are no settings.
NOT_SETTINGS = frozenset({"HONE_CONFIG", "HONE_DEBUG", "HONE_MODEL", "HONE_TASK_ID", "HONE_TASK_INPUT"})

# The names of the variables that Kubernetes sets for a service, besides those whose value is an address.
_KUBERNETES: Final = re.compile(
    r"_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)

# Renamed settings; `*` stands for a name that the user chose. The error for an old key names the new one.
RENAMED_SETTINGS: Final[Mapping[str, str]] = {
    "recorder.batch_turns": "recorder.batch_calls",
    "campaign.reward_recipe": "campaign.judge_recipe",
    "aliases.*.reward_recipe": "aliases.*.judge_recipe",
    "aliases.*.recipe": "aliases.*.notes",
    "campaign.health.kl_engine": "campaign.health.logprob_gap",
}

Raw = dict[str, Any]


def load_settings(config: Path | None, overrides: Mapping[str, object]) -> LoadedSettings:
    """Read, merge and check all settings.

    `config` is the file, or None for `$HONE_CONFIG` or an existing ./hone.toml. `overrides` are the flags: dotted keys
    (`proxy.port`), or sections as nested mappings. Raises `ConfigError`.
    """
    file = find_file(config)
    merged: Raw = {}
    origin: dict[str, str] = {}
    for raw, names in (_from_file(file), _from_environment(), _from_flags(overrides)):
        _merge(merged, raw)
        origin.update(names)
    merged, origin = _over_preset(merged, origin)
    merged, origin = _over_recipe(merged, origin)
    try:
        settings = HoneSettings(**merged)
    except ValidationError as e:
        raise ConfigError("\n".join(dict.fromkeys(_explain(error, origin) for error in e.errors()))) from e
    settings.data = _data_folder(settings, origin, file)
    origins = {key: origin.get(key, "default") for key, _ in list_leaves(settings)}
    return LoadedSettings(settings, origins, file, tuple(_misspelt_variables().values()))


def find_file(config: Path | None) -> Path | None:
    """The file to read: the one that the flag or `$HONE_CONFIG` names, which must exist, else ./hone.toml if there."""
    named = config or (Path(os.environ["HONE_CONFIG"]) if os.environ.get("HONE_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no settings file {named}. Name an existing one with --config.")
        return named
    return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None


# --- the three sources: each gives its nested values and, by dotted key, its name


def _from_file(file: Path | None) -> tuple[Raw, dict[str, str]]:
    if file is None:
        return {}, {}
    try:
        raw = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"{file} cannot be read: {e}") from e
    anchored = _anchor(raw, HoneSettings, "", file)
    return anchored, {key: str(file) for key in _keys(anchored)}


def _from_environment() -> tuple[Raw, dict[str, str]]:
    try:
        raw = EnvSettingsSource(HoneSettings)()
    except SettingsError as e:
        field = re.search(r'field "(\w+)"', str(e))
        prefix = ENV_PREFIX + (field[1].upper() if field else "")
        suspects = ", ".join(sorted(name for name in os.environ if name.upper().startswith(prefix)))
        raise ConfigError(f"env {suspects}: lists and tables are written as JSON ({e.__cause__})") from e
    raw |= _unknown_variables(raw)
    present = {name.upper(): name for name in os.environ}
    names: dict[str, str] = {}
    for key in _keys(raw):
        parts = key.split(".")
        candidates = [ENV_PREFIX + NESTED.join(parts[:n]).upper() for n in range(len(parts), 0, -1)]
        names[key] = "env " + next((present[c] for c in candidates if c in present), candidates[0])
    return raw, names


def _unknown_variables(known: Raw) -> Raw:
    """`HONE_…` variables that name no setting, which are refused like unknown keys of the file.

    One without `__` may belong to another program: it is refused only if it resembles a setting.
    """
    unknown: Raw = {}
    misspelt = _misspelt_variables()
    for variable in os.environ:
        if not variable.upper().startswith(ENV_PREFIX) or variable.upper() in NOT_SETTINGS:
            continue
        name = variable[len(ENV_PREFIX) :].lower()
        section = name.partition(NESTED)[0]
        if variable in misspelt or _is_of_kubernetes(variable):
            continue
        if section not in HoneSettings.model_fields and (
            NESTED in name or difflib.get_close_matches(name, HoneSettings.model_fields, 1)
        ):
            unknown[section] = os.environ[variable]
    return {key: value for key, value in unknown.items() if key not in known}


def _misspelt_variables() -> dict[str, str]:
    """Variables with one underscore where a setting's have two, each with a note that names the right one."""
    keys = {key.replace(".", "_"): key for key, _ in list_leaves(HoneSettings()) if "." in key}
    sections = [name for name, field in HoneSettings.model_fields.items() if inner_model(field.annotation) is not None]
    notes: dict[str, str] = {}
    for variable in sorted(os.environ):
        name = variable[len(ENV_PREFIX) :].lower()
        if not variable.upper().startswith(ENV_PREFIX) or NESTED in name or _is_of_kubernetes(variable):
            continue
        section = next((one for one in sections if name.startswith(f"{one}_")), None)
        if section is None or variable.upper() in NOT_SETTINGS:
            continue
        right = f"{_variable(keys[name])} sets {keys[name]}" if name in keys else f"{_variable(section)}{NESTED}…"
        notes[variable] = f"env {variable} is ignored: write two underscores between section and setting ({right})."
    return notes


def _is_of_kubernetes(variable: str) -> bool:
    """Whether Kubernetes set a variable: it does for each service, and one may be called `hone-proxy`."""
    return os.environ[variable].startswith(("tcp://", "udp://")) or _KUBERNETES.search(variable.upper()) is not None


def _from_flags(overrides: Mapping[str, object]) -> tuple[Raw, dict[str, str]]:
    raw: Raw = {}
    for key, value in overrides.items():
        *parents, leaf = key.split(".")
        _merge(raw, _nest(parents, {leaf: value}))
    return raw, dict.fromkeys(_keys(raw), "flag")


def _nest(parents: list[str], value: Raw) -> Raw:
    for name in reversed(parents):
        value = {name: value}
    return value


def _merge(into: Raw, raw: Mapping[str, Any]) -> None:
    for key, value in raw.items():
        if isinstance(value, Mapping):
            there = into.get(key)
            into[key] = dict(there) if isinstance(there, Mapping) else {}
            _merge(into[key], value)
        else:
            into[key] = value


def _keys(raw: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in raw.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _over_preset(merged: Raw, origin: dict[str, str]) -> tuple[Raw, dict[str, str]]:
    """The settings, with the preset that they name as defaults. An unknown preset is refused like any invalid value."""
    name = _named(merged, "campaign", "preset")
    return _over(PRESETS.get(name, {}), f"preset {name}", merged, origin)


def _over_recipe(merged: Raw, origin: dict[str, str]) -> tuple[Raw, dict[str, str]]:
    """The same for the trainer's recipe, which the trainer's settings apply by themselves: here for the sources."""
    name = _named(merged, "trainer", "recipe")
    values = next((values for recipe, values in RECIPES.items() if recipe == name), {})
    return _over({f"trainer.{key}": value for key, value in values.items()}, f"recipe {name}", merged, origin)


def _named(merged: Raw, section: str, key: str) -> str:
    found = merged.get(section)
    return str(found.get(key)) if isinstance(found, Mapping) else ""


def _over(defaults: Mapping[str, Any], source: str, merged: Raw, origin: dict[str, str]) -> tuple[Raw, dict[str, str]]:
    """The settings with these defaults, by dotted key, below them."""
    whole: Raw = {}
    for key, value in defaults.items():
        *parents, leaf = key.split(".")
        _merge(whole, _nest(parents, {leaf: value}))
    names = dict.fromkeys(_keys(whole), source)
    _merge(whole, merged)
    return whole, names | origin


# --- paths


def _anchor(raw: Raw, model: type[BaseModel], above: str, file: Path) -> Raw:
    """The file's values with paths made absolute from the file's folder; `above` is their section and a dot."""
    return {key: _anchored(value, model, above, key, file) for key, value in raw.items()}


def _anchored(value: Any, model: type[BaseModel], above: str, key: str, file: Path) -> Any:
    field = model.model_fields.get(key)
    if field is None:
        return value
    inner, dotted = inner_model(field.annotation), above + key
    if inner is not None and isinstance(value, dict):
        if get_origin(field.annotation) is not dict:
            return _anchor(value, inner, f"{dotted}.", file)
        return {
            name: _anchor(table, inner, f"{dotted}.{name}.", file) if isinstance(table, dict) else table
            for name, table in value.items()
        }
    if isinstance(value, str):
        with _blame_setting(str(file), dotted, value):
            if _is_path(field.annotation) or (key == "base" and _names_folder(value, file.absolute().parent)):
                there = file.absolute().parent / Path(value).expanduser()
                return str(_program(there) if key == "python" else _followed(there))
    return value


def _followed(path: Path) -> Path:
    """The resolved path. Raises RuntimeError for a circle of links, which `resolve` ignores from Python 3.13 on."""
    there = path.resolve()
    try:
        there.stat()
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise RuntimeError(f"symlink loop from {there}") from e
    return there


def _program(path: Path) -> Path:
    """Return the path of a Python with links unresolved: in an environment it is a link to a Python without its
    packages.
    """
    _followed(path)
    return path.parent.resolve() / path.name


@contextmanager
def _blame_setting(source: str, key: str, value: str | Path) -> Iterator[None]:
    """Turn a path that the system cannot follow into an error of its setting."""
    try:
        yield
    except RuntimeError as e:  # pathlib's error for an unknown user, or for a circle of links
        raise ConfigError(f"{source}: {key}: {str(value)!r} cannot be resolved ({e}). Write the full path.") from e
    except (OSError, ValueError) as e:  # a name too long, a NUL in it
        raise ConfigError(f"{source}: {key}: {str(value)[:200]!r} is not a path ({e}). Name a file or folder.") from e


def _names_folder(value: str, folder: Path) -> bool:
    """A base is a folder or a hub id: a folder when it looks like one or is one."""
    return value.startswith((".", "/", "~")) or (folder / value).is_dir()


def _is_path(annotation: Any) -> bool:
    return annotation is Path or Path in get_args(annotation)


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The settings model that a field holds, alone or in a list or table; None if it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := inner_model(part)) is not None), None)


def _data_folder(settings: HoneSettings, origin: Mapping[str, str], file: Path | None) -> Path:
    parent = file.absolute().parent if file and "data" not in origin else Path.cwd()
    with _blame_setting(origin.get("data", "default"), "data", settings.data):
        return parent / settings.data.expanduser()


# --- errors


def _explain(error: ErrorDetails, origin: Mapping[str, str]) -> str:
    loc = [str(part) for part in error["loc"]]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    source = next((origin[k] for n in range(len(loc), 0, -1) if (k := ".".join(loc[:n])) in origin), "default")
    if not loc:  # two settings contradict each other
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error" and isinstance(error["input"], Mapping):  # two of a section do
        return f"{source}: {describe_value_error(key, error, '')}"
    named = loc[:-1] if loc[-1] == "[key]" else loc  # pydantic's word for a key of a table
    if (new_key := _renamed(named)) is not None:
        spelt = f" (variable {_variable(new_key)})" if source.startswith("env ") else ""
        return f"{source}: {'.'.join(named)!r} is now called {new_key!r}{spelt}. Rename it."
    if error["type"] != "extra_forbidden":
        return f"{source}: {describe_value_error(key, error, display_value(key, error['input']))}"
    near = _nearest(loc)
    hint = f" Did you mean {near!r}?" if near else " `hone config` lists the known ones."
    return f"{source}: unknown key {key!r}.{hint}"


def _renamed(loc: Sequence[str]) -> str | None:
    """The new key of a setting that was renamed; None for any other."""
    for old, new in RENAMED_SETTINGS.items():
        parts = old.split(".")
        if len(parts) == len(loc) and all(part in ("*", name) for part, name in zip(parts, loc, strict=True)):
            own = next((name for part, name in zip(parts, loc, strict=True) if part == "*"), "")
            return new.replace("*", own)
    return None


def _variable(key: str) -> str:
    return ENV_PREFIX + key.replace(".", NESTED).upper()


def _nearest(loc: list[str]) -> str | None:
    """The known key nearest to an unknown one: a sibling that is almost the same or begins the same, then the same name
    in another section, then a sibling.
    """
    *parents, name = loc
    siblings = _fields_at(parents)
    almost = difflib.get_close_matches(name, siblings, 1, cutoff=0.8)
    beginning = [one for one in siblings if name.startswith(f"{one}_")]
    elsewhere = [key for key, _ in list_leaves(HoneSettings()) if key.rpartition(".")[2] == name]
    close = difflib.get_close_matches(name, siblings, 1, cutoff=0.5)
    if not almost and not beginning and elsewhere:
        return elsewhere[0]
    found = [*almost, *beginning, *close]
    return ".".join([*parents, found[0]]) if found else None


def _fields_at(parents: list[str]) -> list[str]:
    model: type[BaseModel] | None = HoneSettings
    for part in parents:
        if model is None:
            return []
        field = model.model_fields.get(part)
        model = inner_model(field.annotation) if field else model  # an alias's name stays at its table's model
    return list(model.model_fields) if model else []
