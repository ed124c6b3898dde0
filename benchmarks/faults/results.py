"""The saved results, one record a kind, store and seed, and the table of them: docs/faults.md.

python -m benchmarks.faults.results            # print the table
python -m benchmarks.faults.results --write    # write it into docs/faults.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.faults.kinds import KINDS
from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

ROOT: Final = Path(__file__).parent.parent.parent
RESULTS: Final = ROOT / "benchmarks" / "results" / "faults.json"
PAGE: Final = ROOT / "docs" / "faults.md"
MARKS: Final = Marks("python -m benchmarks.faults.results --write")
BAD: Final = ("lost", "doubled", "wrong", "unfinished", "broken")  # keys of a record that are 0 or empty if all is well
_STORES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_HEAD: Final = (
    "fault", "store", "times", "answers heard", "lost", "doubled", "wrong", "without an end", "broken rules",
    "answers again after (median / worst)",
)  # fmt: skip

Record = dict[str, Any]


def read_results() -> list[Record]:
    """Return all records, in the order of kinds, stores and seeds; empty without a file."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def has_result(kind: str, store: str, seed: int) -> bool:
    """Whether this seed has been run and saved."""
    return (kind, store, seed) in {_key(one) for one in read_results()}


def save_result(result: Record) -> None:
    """Add a record, in place of an older one of the same kind, store and seed."""
    others = [one for one in read_results() if _key(one) != _key(result)]
    RESULTS.write_text(json.dumps(sorted([*others, result], key=_key), indent=1) + "\n")


def _key(record: Record) -> tuple[str, str, int]:
    return record["kind"], record["store"], record["seed"]


def table(records: Sequence[Record]) -> str:
    """Return the table in Markdown: one row a kind and store, all seeds together."""
    rows = []
    for kind, about in KINDS.items():
        for store in about.stores:
            own = [one for one in records if (one["kind"], one["store"]) == (kind, store)]
            rows.append(
                [about.title, _STORES[store], *(_figures(own) if own else ["not run", *[""] * (len(_HEAD) - 3)])]
            )
    return markdown(_HEAD, rows)


def _figures(records: Sequence[Record]) -> list[str]:
    totals = [f"{sum(one[key] for one in records):,}" for key in ("times", "answers", "lost", "doubled", "wrong")]
    ends = sum(sum(one["unfinished"].values()) for one in records)
    broken = sum(len(one["broken"]) for one in records)
    median = sorted(one["recovered_s"]["median"] for one in records)[len(records) // 2]
    worst = max(one["recovered_s"]["worst"] for one in records)
    return [*totals, f"{ends:,}", f"{broken:,}", f"{median:.2f} s / {worst:.2f} s"]


def write_page() -> None:
    """Write the table into the page."""
    MARKS.write(PAGE, table(read_results()))


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write it into docs/faults.md")
    if parser.parse_args().write:
        write_page()
    else:
        print(table(read_results()))


if __name__ == "__main__":
    main()
