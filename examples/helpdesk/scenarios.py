"""Writes what the demo needs on disk: the orders database, the scenarios to learn from and the ones to measure with.

    python -m examples.helpdesk.scenarios FOLDER

Owns the files' names and the form of a scenario: ``{"id", "input": {"question"}, "reference": {"order_id", "day"}}``.
Refuses to invent: every reference is read from the database.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.helpdesk.orders import DEMO_SEED, Order, demo_orders, read_database, write_database
from examples.helpdesk.wording import question


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Where the demo's files lie."""

    database: Path
    scenarios: Path
    heldout: Path


def demo_files(folder: Path) -> DemoFiles:
    """The files' paths in a folder."""
    return DemoFiles(folder / "orders.sqlite", folder / "scenarios.jsonl", folder / "heldout.jsonl")


def write_demo(folder: Path, seed: int = DEMO_SEED) -> DemoFiles:
    """Write the database and both lists of scenarios, replacing what is there; the same for the same seed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = demo_files(folder)
    write_database(files.database, demo_orders(seed))
    orders = read_database(files.database)
    rng = random.Random(seed)
    _write(files.scenarios, rng.sample(orders.train, len(orders.train)), rng)
    _write(files.heldout, orders.heldout, rng)
    return files


def scenario(order: Order, rng: random.Random) -> dict[str, Any]:
    """One question about an order, and the right answer's facts."""
    return {
        "id": f"order-{order.order_id}",
        "input": {"question": question(order.order_id, rng)},
        "reference": {"order_id": order.order_id, "day": order.day},
    }


def _write(path: Path, orders: Iterable[Order], rng: random.Random) -> None:
    lines = [json.dumps(scenario(order, rng)) for order in orders]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the files and say where they are."""
    parser = argparse.ArgumentParser(description="Write the demo's orders and scenarios.")
    parser.add_argument("folder", type=Path)
    files = write_demo(parser.parse_args().folder)
    print(f"{files.database}\n{files.scenarios}\n{files.heldout}")


if __name__ == "__main__":
    main()
