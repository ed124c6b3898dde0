"""What the fuzzer of test_fuzz.py is told: ids that exist, and that a change without a body is application/json too."""

from __future__ import annotations

import os
from typing import Any

import schemathesis

_NAMES = os.environ["FUZZED_NAMES"].split(",")


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Every second time the name of something that is there, else whatever was generated."""
    return {
        name: _NAMES[sum(map(ord, value)) % len(_NAMES)] if isinstance(value, str) and len(value) % 2 else value
        for name, value in (path_parameters or {}).items()
    }


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """A proxy without keys takes no changing request that a page in a browser could send."""
    if case.method not in ("GET", "HEAD", "OPTIONS", "TRACE", "QUERY") and case.media_type is None:
        case.headers = {**(case.headers or {}), "Content-Type": "application/json"}
