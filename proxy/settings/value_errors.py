"""The message about a value that a setting does not accept, wherever the value was given.

Owns: the form of the message. Refuses: where the value came from, and masking it (`proxy.settings.loader`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import ErrorDetails


def describe_value_error(key: str, error: ErrorDetails, shown: object) -> str:
    """Return what is wrong with a setting's value. `shown`: the value as it may be printed."""
    if error["type"] == "value_error" and isinstance(error["input"], Mapping):  # two settings of a section contradict
        return f"{key}: {error['msg'].removeprefix('Value error, ')}"
    return f"{key}: {error['msg']} (got {str(shown)[:200]!r})"
