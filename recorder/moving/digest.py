"""What a table holds, as a count and one number: equal for equal rows, whichever database keeps them and in what order.

Owns: what counts as equal. Refuses: reading rows (`recorder.moving.pages`).

The number is the sum of the rows' hashes, since databases sort keys differently. JSON is equal when its values are: a
database that reads it may write it back with other spaces, keys in another order, and 1.0 as 1. Text is compared as
both can keep it (`recorder.store.sql.storable`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import JSON, Table

from recorder.moving.pages import Row, pages
from recorder.store.database import Store
from recorder.store.sql import storable
from recorder.store.statement import true_json

_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * _BYTES
_NUL: Final = "\x00"


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def hex(self) -> str:
        """The sum, to be shown."""
        return f"{self.total:0{2 * _BYTES}x}"


def digest_of(table: Table, rows: list[Row], before: Digest | None = None) -> Digest:
    """The digest of some rows, on top of others."""
    before = before or Digest()
    json_at = json_in(table)
    total = before.total + sum(_hash(row, json_at) for row in rows)
    return Digest(before.rows + len(rows), total % _MODULUS)


async def digest_table(store: Store, table: Table) -> Digest:
    """The digest of a whole table."""
    digest = Digest()
    async for page in pages(store, table):
        digest = digest_of(table, page, digest)
    return digest


def as_kept(row: Row, json_at: Sequence[int] = ()) -> Row:
    """A row as both databases can keep it: PostgreSQL has no NUL in text, and no NaN in JSON (at `json_at`)."""
    if any(isinstance(value, str) and _NUL in value for value in row):
        row = tuple(storable(value) if isinstance(value, str) else value for value in row)
    told = {place: true_json(row[place]) for place in json_at if row[place] is not None}
    if all(row[place] is text for place, text in told.items()):
        return row
    return tuple(told.get(place, value) for place, value in enumerate(row))


def json_in(table: Table) -> list[int]:
    """At which places its rows have JSON."""
    return [place for place, column in enumerate(table.c) if isinstance(column.type, JSON)]


def _hash(row: Row, json_at: list[int]) -> int:
    values = list(as_kept(row, json_at))
    for place in json_at:
        values[place] = _meaning(values[place])
    return int.from_bytes(blake2b(repr(values).encode("ascii", "backslashreplace"), digest_size=_BYTES).digest())


def _meaning(text: str | None) -> str | None:
    """JSON text as one spelling of its value."""
    if text is None or len(text) <= 2:  # {}, [], a digit
        return text
    return json.dumps(_plain(json.loads(text)), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
