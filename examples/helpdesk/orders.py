"""The orders: id, status, tracking number and day of arrival.

Owns the SQLite file that the tools read, its generation from a seed, and the split of the orders. Order ids and
tracking numbers n with n % 7 == 3 belong to the demo. The tiny model was trained on the others, so it has never seen an
order of the demo. The demo's orders are shuffled once: the first 200 are held out for measuring, the rest are for
training. Refuses: agents, tools and models.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
STATUSES = ("packed", "shipped", "delayed")
HELD_OUT = 200
DEMO_SEED = 7

_SCHEMA = """
CREATE TABLE orders (
    order_id TEXT PRIMARY KEY,
    status   TEXT NOT NULL,
    tracking TEXT NOT NULL UNIQUE,
    day      TEXT NOT NULL,
    split    TEXT NOT NULL CHECK (split IN ('train', 'heldout'))
) WITHOUT ROWID, STRICT
"""


@dataclass(frozen=True, slots=True)
class Order:
    """One order; ``order_id`` is four digits, ``tracking`` is a P and five digits."""

    order_id: str
    status: str
    tracking: str
    day: str


@dataclass(frozen=True, slots=True)
class Orders:
    """The demo's orders, in two disjoint parts: ``train`` for training, ``heldout`` for measuring."""

    train: tuple[Order, ...]
    heldout: tuple[Order, ...]


def is_demo_number(number: int) -> bool:
    """Whether an order id or a tracking number belongs to the demo; the others are for making the model."""
    return number % 7 == 3


def random_order(rng: random.Random, number: int, *, demo: bool) -> Order:
    """Return an order with this id and random fields. Either both its numbers belong to the demo, or neither does."""
    tracking = rng.randrange(100_000)
    while is_demo_number(tracking) != demo:
        tracking = rng.randrange(100_000)
    return Order(f"{number:04d}", rng.choice(STATUSES), f"P{tracking:05d}", rng.choice(DAYS))


def demo_orders(seed: int = DEMO_SEED) -> Orders:
    """Return all 1,286 orders of the demo, the same for the same seed."""
    rng = random.Random(seed)
    numbers = [number for number in range(1_000, 10_000) if is_demo_number(number)]
    rng.shuffle(numbers)
    orders: dict[str, Order] = {}
    for number in numbers:
        order = random_order(rng, number, demo=True)
        while order.tracking in orders:
            order = random_order(rng, number, demo=True)
        orders[order.tracking] = order
    every = tuple(orders.values())
    return Orders(train=every[HELD_OUT:], heldout=every[:HELD_OUT])


def write_database(path: Path, orders: Orders) -> None:
    """Write the orders to a new SQLite file; an existing file is replaced."""
    path.unlink(missing_ok=True)
    rows = [*_rows(orders.train, "train"), *_rows(orders.heldout, "heldout")]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_SCHEMA)
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)


def read_database(path: Path) -> Orders:
    """Read the orders, sorted by id.

    Raises:
        sqlite3.OperationalError: the file does not exist, or has no table of orders.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT order_id, status, tracking, day, split FROM orders ORDER BY order_id")
        split: dict[str, list[Order]] = {"train": [], "heldout": []}
        for order_id, status, tracking, day, side in rows:
            split[side].append(Order(order_id, status, tracking, day))
    return Orders(train=tuple(split["train"]), heldout=tuple(split["heldout"]))


def _rows(orders: Iterable[Order], split: str) -> Sequence[tuple[str, str, str, str, str]]:
    return [(order.order_id, order.status, order.tracking, order.day, split) for order in orders]
