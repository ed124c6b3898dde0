"""The settings in force: hone.toml, over it `HONE_…` environment variables, over these flags.

Owns: composing the packages' sections, reading the three sources, saying where each value came from, and errors that
name the file, the key and the nearest known key. Refuses: what a setting means (its section's docstring says it).

Paths in the file are relative to the file; paths in variables and flags are relative to the working directory.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from judge.settings import JudgeSettings
from proxy.errors import ConfigError
from proxy.settings.mcp import McpServerSettings, check_names
from proxy.settings.sections import AliasSettings, EngineSettings, ProxySettings
from recorder.settings import RecorderSettings
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings

FILE_NAME = "hone.toml"
ENV_PREFIX = "HONE_"
NESTED = "__"
# Variables that Hone reads or gives to agents, and that are no settings.
NOT_SETTINGS = frozenset({"HONE_CONFIG", "HONE_DEBUG", "HONE_MODEL", "HONE_TASK_ID", "HONE_TASK_INPUT"})
MASK = "********"
_SECRET_NAMES = ("key", "token", "secret", "password")
_SECRET_PARAMETER = re.compile(rf"([?&][^=&#]*(?:{'|'.join(_SECRET_NAMES)})=)[^&#]*", re.IGNORECASE)

Raw = dict[str, Any]


class HoneSettings(BaseSettings):
    """Everything that can be set. Build it with `load_settings`."""

    model_config = SettingsConfigDict(
        extra="forbid", use_attribute_docstrings=True, env_prefix=ENV_PREFIX, env_nested_delimiter=NESTED
    )

    project: str = "default"
    """The project whose aliases, keys and runs this program works with."""
    data: Path = Path(".hone")
    """The data folder: the store, adapters, logs. Default: `.hone` beside hone.toml, else in the working directory."""
    proxy: ProxySettings = ProxySettings()
    """The HTTP server."""
    engine: EngineSettings = EngineSettings()
    """The model server behind the proxy."""
    recorder: RecorderSettings = RecorderSettings()
    """The store, and when runs and groups end."""
    judge: JudgeSettings = JudgeSettings()
    """Who scores groups, and how."""
    trainer: TrainerSettings = TrainerSettings()
    """How scored groups become versions."""
    campaign: CampaignSettings = CampaignSettings()
    """Training over scenarios that Hone runs itself (`hone train`)."""
    aliases: dict[str, AliasSettings] = {}
    """The names that agents ask for. Default: one, named as the engine names the base."""

    mcp: dict[str, McpServerSettings] = {}
    """The MCP servers whose tools callers find at `/mcp`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load_settings` merged counts: it knows the order, and where each value came from."""
        return (init_settings,)

    def declared_aliases(self) -> dict[str, AliasSettings]:
        """The aliases of hone.toml or `--model`; where there are none, one named like the engine's base."""
        base = base_name(self.engine)
        if self.aliases or base is None:
            return self.aliases
        return {base: AliasSettings()}

    def base_models(self) -> list[str]:
        """The names that aliases want the engine to serve the base under, besides its own."""
        return sorted({a.base_model for a in self.aliases.values() if a.base_model})

    @model_validator(mode="after")
    def _fit(self) -> HoneSettings:
        if self.trainer.rank > self.engine.max_lora_rank:
            raise ValueError(
                f"trainer.rank {self.trainer.rank} is higher than engine.max_lora_rank {self.engine.max_lora_rank}: "
                "the engine would refuse every version"
            )
        models = {model.name for model in self.proxy.models}
        if both := sorted(models & self.declared_aliases().keys()):
            raise ValueError(f"{both[0]!r} names an alias and a model of [[proxy.models]]: rename one of them")
        for name, alias in self.aliases.items():
            if alias.fallback is not None and alias.fallback not in models:
                there = ", ".join(sorted(models)) or "none"
                raise ValueError(
                    f"aliases.{name}.fallback is {alias.fallback!r}, no model of [[proxy.models]]: {there}"
                )
        if self.proxy.mcp_prefix == "none" and len(self.mcp) > 1:
            raise ValueError(
                f"proxy.mcp_prefix is 'none', and there are {len(self.mcp)} MCP servers ({', '.join(self.mcp)}): names "
                "can stay as they are with one server only"
            )
        check_names(self.mcp)
        return self

    def model_names(self) -> list[str]:
        """The names that agents may ask for."""
        return [*self.declared_aliases(), *(model.name for model in self.proxy.models)]

    def fallbacks(self) -> dict[str, str]:
        """The model that answers for an alias while no engine can, by the alias's name."""
        return {name: alias.fallback for name, alias in self.aliases.items() if alias.fallback is not None}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and for each leaf's dotted key the source of its value."""

    settings: HoneSettings
    origin: dict[str, str]
    file: Path | None


def base_name(engine: EngineSettings) -> str | None:
    """The name under which the engine serves the base model, or None when nothing says it."""
    if engine.name or engine.base is None:
        return engine.name
    return Path(engine.base).name


def load_settings(config: Path | None, overrides: Mapping[str, object]) -> Loaded:
    """Read, merge and check all settings.

    `config` is the file, or None to take `$HONE_CONFIG` or ./hone.toml where there is one. `overrides` are the flags:
    dotted keys (`proxy.port`), or sections as nested mappings. Raises `ConfigError`.
    """
    file = find_file(config)
    merged: Raw = {}
    origin: dict[str, str] = {}
    for raw, names in (_from_file(file), _from_environment(), _from_flags(overrides)):
        _merge(merged, raw)
        origin.update(names)
    try:
        settings = HoneSettings(**merged)
    except ValidationError as e:
        raise ConfigError("\n".join(_explain(error, origin) for error in e.errors())) from e
    settings.data = _data_folder(settings, origin, file)
    return Loaded(settings, {key: origin.get(key, "default") for key, _ in leaves(settings)}, file)


def as_environment(overrides: Mapping[str, object]) -> dict[str, str]:
    """Flags as the variables that say the same, for child processes."""
    return {
        ENV_PREFIX + key.replace(".", NESTED).upper(): value
        if isinstance(value, str)
        else json.dumps(value, default=str)
        for key, value in overrides.items()
    }


def find_file(config: Path | None) -> Path | None:
    """The file to read: the one named by the flag or `$HONE_CONFIG` (it must exist), else ./hone.toml if it exists."""
    named = config or (Path(os.environ["HONE_CONFIG"]) if os.environ.get("HONE_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no settings file {named}. Name an existing one with --config.")
        return named
    return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None


def leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a model as (dotted key, value), depth first in declared order."""
    for name in type(model).model_fields:
        yield from _leaves_of(getattr(model, name), prefix + name)


def _leaves_of(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        yield from leaves(value, key + ".")
    elif isinstance(value, dict) and value and all(isinstance(v, BaseModel) for v in value.values()):
        for name, item in value.items():
            yield from leaves(item, f"{key}.{name}.")
    else:
        yield key, value


def shown(key: str, value: Any) -> Any:
    """A setting's value for printing: JSON-able, secrets masked."""
    if value is None:
        return None
    name = key.rpartition(".")[2].lower()
    if isinstance(value, SecretStr) or (isinstance(value, str) and name.endswith(_SECRET_NAMES)):
        return MASK
    if isinstance(value, BaseModel):
        return {name: shown(name, inner) for name, inner in value}
    if isinstance(value, dict):
        return {k: shown(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [shown(key, v) for v in value]
    if isinstance(value, str) and "://" in value:
        return _without_secrets(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _password = login.partition(":")
    if at:  # a login that stands alone is a token where HTTP is spoken, and a user elsewhere
        shown_login = f"{user}:{MASK}" if colon else MASK if scheme.startswith("http") else user
        url = f"{scheme}://{shown_login}@{host}"
    return _SECRET_PARAMETER.sub(rf"\1{MASK}", url)


# --- the three sources: each gives its nested values and, by dotted key, its name


def _from_file(file: Path | None) -> tuple[Raw, dict[str, str]]:
    if file is None:
        return {}, {}
    try:
        raw = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"{file} cannot be read: {e}") from e
    anchored = _anchor(raw, HoneSettings, file.absolute().parent)
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
    """`HONE_…` variables that name no setting, to be refused like unknown keys of the file.

    One without `__` may belong to somebody else: it is refused only when it looks like a misspelt setting.
    """
    unknown: Raw = {}
    for variable in os.environ:
        if not variable.upper().startswith(ENV_PREFIX) or variable.upper() in NOT_SETTINGS:
            continue
        name = variable[len(ENV_PREFIX) :].lower()
        section = name.partition(NESTED)[0]
        if section not in HoneSettings.model_fields and (
            NESTED in name or difflib.get_close_matches(name, HoneSettings.model_fields, 1)
        ):
            unknown[section] = os.environ[variable]
    return {key: value for key, value in unknown.items() if key not in known}


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


# --- paths


def _anchor(raw: Raw, model: type[BaseModel], folder: Path) -> Raw:
    """The file's values with paths made absolute from the file's folder."""
    return {key: _anchored(value, key, model, folder) for key, value in raw.items()}


def _anchored(value: Any, key: str, model: type[BaseModel], folder: Path) -> Any:
    field = model.model_fields.get(key)
    if field is None:
        return value
    inner = _inner_model(field.annotation)
    if inner is not None and isinstance(value, dict):
        if get_origin(field.annotation) is not dict:
            return _anchor(value, inner, folder)
        return {
            name: _anchor(table, inner, folder) if isinstance(table, dict) else table for name, table in value.items()
        }
    if isinstance(value, str) and (_is_path(field.annotation) or (key == "base" and _names_folder(value, folder))):
        return str((folder / Path(value).expanduser()).resolve())
    return value


def _names_folder(value: str, folder: Path) -> bool:
    """A base is a folder or a hub id: a folder when it looks like one or is one."""
    return value.startswith((".", "/", "~")) or (folder / value).is_dir()


def _is_path(annotation: Any) -> bool:
    return annotation is Path or Path in get_args(annotation)


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _data_folder(settings: HoneSettings, origin: Mapping[str, str], file: Path | None) -> Path:
    beside = file.absolute().parent if file and "data" not in origin else Path.cwd()
    return beside / settings.data.expanduser()


# --- errors


def _explain(error: ErrorDetails, origin: Mapping[str, str]) -> str:
    loc = [str(part) for part in error["loc"]]
    key = ".".join(loc)
    source = next((origin[k] for n in range(len(loc), 0, -1) if (k := ".".join(loc[:n])) in origin), "default")
    if not loc:  # two settings contradict each other
        return error["msg"].removeprefix("Value error, ")
    if error["type"] != "extra_forbidden":
        return f"{source}: {key}: {error['msg']} (got {str(shown(key, error['input']))[:200]!r})"
    near = _nearest(loc)
    hint = f" Did you mean {near!r}?" if near else " `hone config` lists the known ones."
    return f"{source}: unknown key {key!r}.{hint}"


def _nearest(loc: list[str]) -> str | None:
    """The known key most like an unknown one: of its very name in another section, else among its siblings."""
    *parents, name = loc
    elsewhere = [key for key, _ in leaves(HoneSettings()) if key.rpartition(".")[2] == name]
    close = difflib.get_close_matches(name, _fields_at(parents), 1, cutoff=0.5)
    return elsewhere[0] if elsewhere else ".".join([*parents, close[0]]) if close else None


def _fields_at(parents: list[str]) -> list[str]:
    model: type[BaseModel] | None = HoneSettings
    for part in parents:
        if model is None:
            return []
        field = model.model_fields.get(part)
        model = _inner_model(field.annotation) if field else model  # an alias's name stays at its table's model
    return list(model.model_fields) if model else []
