"""What commands print for programs: `--json`.

Owns: the form of the JSON. Refuses: which values a command prints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import IO, Any

import click


def write_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(to_json(value, indent=2))


def write_json_line(value: object, out: IO[str] | None = None, *, compact: bool = False) -> None:
    """Print one JSON document on a line of its own, unbuffered, to `out` or standard output."""
    click.echo(to_json(value, compact=compact), file=out)


def to_json(value: object, *, indent: int | None = None, compact: bool = False) -> str:
    """Return JSON in ASCII, so that a transcript cannot control the terminal; NaN and infinity become null."""
    form: dict[str, Any] = {"indent": indent, "separators": (",", ":") if compact else None}
    try:
        return json.dumps(value, allow_nan=False, default=_plain, **form)
    except ValueError:
        return json.dumps(_finite(json.loads(json.dumps(value, default=_plain))), **form)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """Convert a value that JSON cannot represent."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence | frozenset) else str(value)
