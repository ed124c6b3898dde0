"""Settings for readers: dotted keys with their values for people, environment variables for child processes.

Owns: masking secrets. Refuses: where values come from (`proxy.settings.loader`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr

from proxy.settings.descriptions import field_descriptions
from proxy.settings.hone import ENV_PREFIX, NESTED
from recorder.base.urls import SECRET_NAMES, mask_parameters

MASK = "********"
_SECRET_NAME = rf"[\w.-]*(?:{'|'.join(SECRET_NAMES)})"
_SECRET_OPTION = re.compile(rf"-{_SECRET_NAME}", re.IGNORECASE)
_SECRET_GIVEN = re.compile(rf"""(["']?(?:-[\w-]+=)?["']?{_SECRET_NAME}["']?\s*[=:]\s*).+""", re.IGNORECASE | re.DOTALL)
_SECRET_FIELD = re.compile(rf'("{_SECRET_NAME}"\s*:\s*)"[^"]*"', re.IGNORECASE)  # of JSON
_WORD = re.compile(r"""\s+|(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""")  # of a shell's command, or what is between two


def as_environment(overrides: Mapping[str, object]) -> dict[str, str]:
    """Flags as the environment variables of the same settings, for child processes."""
    return {
        ENV_PREFIX + key.replace(".", NESTED).upper(): value
        if isinstance(value, str)
        else json.dumps(value, default=str)
        for key, value in overrides.items()
    }


def list_leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a model as (dotted key, value), depth first in the order of declaration."""
    yield from ((key, value) for key, value, _, _ in _leaves(model, prefix))


def describe_leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting of a model as (dotted key, value, description on one line)."""
    for key, value, owner, name in _leaves(model, prefix):
        yield key, value, " ".join(field_descriptions(owner).get(name, "").split())


def _leaves(model: BaseModel, prefix: str) -> Iterator[tuple[str, Any, type[BaseModel], str]]:
    """Every setting, with the model that declares it and its name there."""
    owner = type(model)
    for name in owner.model_fields:
        value, key = getattr(model, name), prefix + name
        if isinstance(value, BaseModel):
            yield from _leaves(value, key + ".")
        elif isinstance(value, dict) and value and all(isinstance(v, BaseModel) for v in value.values()):
            for inner, item in value.items():
                yield from _leaves(item, f"{key}.{inner}.")
        else:
            yield key, value, owner, name


def display_value(key: str, value: Any) -> Any:
    """A setting's value for printing: JSON-compatible, with secrets masked."""
    if value is None:
        return None
    name = key.rpartition(".")[2].lower()
    if isinstance(value, SecretStr) or (isinstance(value, str) and name.endswith(SECRET_NAMES)):
        return MASK
    if isinstance(value, BaseModel):
        return {name: display_value(name, inner) for name, inner in value}
    if isinstance(value, dict):
        return {k: display_value(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return (
            _arguments_shown(value)
            if all(isinstance(v, str) for v in value)
            else [display_value(key, v) for v in value]
        )
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # as TOML writes it; JSON has no such number
    if isinstance(value, str):
        return _command_shown(value)
    return value if isinstance(value, bool | int | float) else str(value)


def secret_values(settings: object) -> Iterator[str]:
    """Every value of settings that `display_value` masks as a whole, for masking it in other texts."""
    if isinstance(settings, SecretStr):
        yield settings.get_secret_value()
    elif isinstance(settings, BaseModel):
        for name, value in settings:
            if isinstance(value, str) and name.lower().endswith(SECRET_NAMES):
                yield value
            else:
                yield from secret_values(value)
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from secret_values(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from secret_values(value)


def _command_shown(text: str) -> str:
    """A text that may be a shell command: its words masked as arguments, the whitespace between them unchanged."""
    arguments = _WORD.findall(text)
    masked = iter(_arguments_shown([argument for argument in arguments if not argument.isspace()]))
    return "".join(argument if argument.isspace() else next(masked) for argument in arguments)


def _arguments_shown(arguments: Sequence[str]) -> list[str]:
    """Arguments of a command. All that follows a secret's option is masked, up to the next option."""
    masked: list[str] = []
    hidden = False
    for argument in arguments:
        names_one = bool(_SECRET_OPTION.fullmatch(argument))
        hidden = names_one or (hidden and not argument.startswith("--"))
        masked.append(MASK if hidden and not names_one else _argument_shown(argument))
    return masked


def _argument_shown(argument: str) -> str:
    if (given := _SECRET_GIVEN.fullmatch(argument)) is not None:
        return given[1] + MASK
    argument = _SECRET_FIELD.sub(rf'\1"{MASK}"', argument)
    return _without_secrets(argument) if "://" in argument else argument


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _password = login.partition(":")
    if at:  # a login without a password is a token in an HTTP URL, and a user name in any other
        shown_login = f"{user}:{MASK}" if colon else MASK if scheme.endswith(("http", "https")) else user
        url = f"{scheme}://{shown_login}@{host}"
    return mask_parameters(url, MASK)
