"""Settings as others read them: dotted keys with their values for people, variables for child processes.

Owns: masking what is secret. Refuses: where values come from (`proxy.settings.loading`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from proxy.settings.hone import ENV_PREFIX, NESTED

MASK = "********"
_SECRET_NAMES = ("key", "token", "secret", "password")
_SECRET_PARAMETER = re.compile(rf"([?&][^=&#]*(?:{'|'.join(_SECRET_NAMES)})=)[^&#]*", re.IGNORECASE)


def as_environment(overrides: Mapping[str, object]) -> dict[str, str]:
    """Flags as the variables that say the same, for child processes."""
    return {
        ENV_PREFIX + key.replace(".", NESTED).upper(): value
        if isinstance(value, str)
        else json.dumps(value, default=str)
        for key, value in overrides.items()
    }


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
