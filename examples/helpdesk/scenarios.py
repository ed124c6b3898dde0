"""Write the demo's files: the orders database, the scenarios for training and those for measuring.

    python -m examples.helpdesk.scenarios FOLDER

Owns the files' names and the form of a scenario: ``{"id", "input": {"question"}, "reference": {"order_id", "day"}}``.
Every reference is read from the database.
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
    """The paths of the demo's files."""

    database: Path
    scenarios: Path
    heldout: Path


def demo_files(folder: Path) -> DemoFiles:
    """Return the paths of the files in a folder."""
    return DemoFiles(folder / "orders.sqlite", folder / "scenarios.jsonl", folder / "heldout.jsonl")


def write_demo(folder: Path, seed: int = DEMO_SEED) -> DemoFiles:
    """Write the database and both lists of scenarios, the same for the same seed. Existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    files = demo_files(folder)
    write_database(files.database, demo_orders(seed))
    orders = read_database(files.database)
    rng = random.Random(seed)
    _write(files.scenarios, rng.sample(orders.train, len(orders.train)), rng)
    _write(files.heldout, orders.heldout, rng)
    return files


def scenario(order: Order, rng: random.Random) -> dict[str, Any]:
    """Return one question about an order, with the facts of the right answer."""
    return {
        "id": f"order-{order.order_id}",
        "input": {"question": question(order.order_id, rng)},
        "reference": {"order_id": order.order_id, "day": order.day},
    }


def _write(path: Path, orders: Iterable[Order], rng: random.Random) -> None:
    lines = [json.dumps(scenario(order, rng)) for order in orders]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the files and print their paths."""
    parser = argparse.ArgumentParser(description="Write the demo's orders and scenarios.")
    parser.add_argument("folder", type=Path)
    files = write_demo(parser.parse_args().folder)
    print(f"{files.database}\n{files.scenarios}\n{files.heldout}")


if __name__ == "__main__":
    main()
