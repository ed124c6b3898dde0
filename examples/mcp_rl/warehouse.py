"""The committed server's warehouse: its items in a SQLite file, and the reservations.

Owns: an item's fields, making a warehouse from a seed, and the file. Refuses: tools and wording.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.mcp_rl.names import served

SHELVES: Final = "ABCDEFGH"
_SCHEMA: Final = """
CREATE TABLE items (
    number TEXT PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    shelf  TEXT NOT NULL,
    stock  INTEGER NOT NULL,
    euros  INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE reservations (number TEXT NOT NULL, count INTEGER NOT NULL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One item. `number`: three digits; `left`: pieces, and `euros`: its price, two digits each."""

    number: str
    name: str
    shelf: str
    left: int
    euros: int


def random_item(rng: random.Random, number: int, name: str) -> Item:
    """Return an item with random shelf, stock and price."""
    return Item(f"{number:03d}", name, rng.choice(SHELVES), rng.randrange(10, 100), rng.randrange(10, 100))


def warehouse(seed: int) -> list[Item]:
    """Return every item of the committed server, the same for the same seed."""
    rng = random.Random(seed)
    names = served()
    numbers = rng.sample(range(1000), len(names))
    return [random_item(rng, number, name) for number, name in zip(numbers, names, strict=True)]


def write_database(path: Path, items: Iterable[Item]) -> None:
    """Write the items to a new SQLite file; an existing file is replaced."""
    path.unlink(missing_ok=True)
    rows = [(one.number, one.name, one.shelf, one.left, one.euros) for one in items]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMA)
        connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?)", rows)


def read_items(path: Path) -> Sequence[Item]:
    """Return all items."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [Item(*row) for row in connection.execute("SELECT number, name, shelf, stock, euros FROM items")]


def reserve(path: Path, number: str, count: int) -> None:
    """Store a reservation of an item."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO reservations VALUES (?, ?)", (number, count))


def reservations(path: Path) -> int:
    """Return the number of reservations."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM reservations").fetchone()[0])
