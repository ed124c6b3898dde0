"""How long SQLite's full-text index blocks the writer: while documents arrive, and while deleted words are merged out.

    python -m benchmarks.merging --save        writes benchmarks/results/merging.json

The index of the schema, filled with made-up documents with realistic word frequencies (Zipf), so that the commonest
words are in nearly every document. Each step is one transaction from BEGIN to COMMIT; its time is the CPU time of the
working thread, which is more reliable than the clock on a shared machine. One step merges whole terms: a word that is
in every document is merged in one step, however few pages a step may write.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from recorder.search.indexer import CALLS
from recorder.store.schema import BESIDE

RESULTS: Final = Path(__file__).parent / "results" / "merging.json"
WORDS: Final = 30  # per document
VOCABULARY: Final = 50_000
LAST: Final = 20_000  # documents written as the indexer does; earlier ones in large transactions
GONE: Final = 1000  # documents deleted
LONG_MS: Final = 20.0  # longer steps would delay the recording of calls
FILLED: Final = ((), (("automerge", 2),), (("automerge", 16),), (("automerge", 0), ("crisismerge", 64)))
MERGED: Final = (32, 16, 8)

Config = Sequence[tuple[str, int]]


def opened(file: Path) -> sqlite3.Connection:
    """Open the index's file as the recorder does."""
    db = sqlite3.connect(file, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
        db.execute(f"PRAGMA {pragma}")
    return db


def documents(first: int, behind: int) -> Iterator[tuple[int, str]]:
    """Return documents by number, each of `WORDS` words, always the same."""
    draw = random.Random(first)
    vocabulary = [f"w{number:x}q" for number in range(VOCABULARY)]
    said = draw.choices(vocabulary, [1 / (number + 1) for number in range(VOCABULARY)], k=1_000_000)
    for number in range(first, behind):
        at = draw.randrange(len(said) - WORDS)
        yield number, " ".join(said[at : at + WORDS])


def step(db: sqlite3.Connection, work: Callable[[], object]) -> float:
    """Run one transaction; return milliseconds of this thread's CPU."""
    began = time.thread_time()
    db.execute("BEGIN IMMEDIATE")
    work()
    db.execute("COMMIT")
    return 1000 * (time.thread_time() - began)


def fill(db: sqlite3.Connection, first: int, behind: int, at_once: int) -> list[float]:
    """Write documents, this many per step; return the times."""
    put, coming = "INSERT INTO said VALUES (?, ?)", documents(first, behind)
    portions = iter(lambda: list(islice(coming, at_once)), [])
    return [step(db, partial(db.executemany, put, rows)) for rows in portions]


def erase(db: sqlite3.Connection, number: int, pages: int) -> list[float]:
    """Delete documents; return the times of the steps that merge out their words (`recorder.search.indexer`)."""
    gone = random.Random(0).sample(range(number), GONE)
    step(db, lambda: db.executemany("DELETE FROM said WHERE id = ?", [(one,) for one in gone]))
    merge = "INSERT INTO said_words (said_words, rank) VALUES ('merge', ?)"
    took: list[float] = []
    changed, begun = 2, False
    while changed >= 2:
        before = db.total_changes
        rank = pages if begun else -pages
        took.append(step(db, partial(db.execute, merge, (rank,))))
        changed, begun = db.total_changes - before, True
    return took


def told(took: Sequence[float]) -> dict[str, Any]:
    """Return the quantiles of steps, in milliseconds."""
    ordered = sorted(took)
    return {
        "steps": len(took),
        "p50_ms": round(ordered[len(took) // 2], 2),
        "p99_ms": round(ordered[int(len(took) * 0.99)], 2),
        "max_ms": round(ordered[-1], 2),
        f"over_{LONG_MS:g}_ms": sum(one > LONG_MS for one in took),
        "sum_s": round(sum(took) / 1000, 2),
    }


def measure(folder: Path, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure each way to fill, and each size of a merging step, on an index of this many documents."""
    base = folder / "base.db"
    with closing(opened(base)) as db:
        db.execute("CREATE TABLE said (id INTEGER PRIMARY KEY, words TEXT)")
        db.execute("CREATE TABLE unmerged (mark INTEGER PRIMARY KEY)")
        for statement in BESIDE["sqlite"]:
            db.execute(statement)
        fill(db, 0, number - LAST, 2000)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for config in FILLED:
        name = ", ".join(f"{key} = {value}" for key, value in config) or "as SQLite has it"
        yield f"fill, {name}", told(_on_copy(base, partial(_filled, number=number, config=config)))
    with closing(opened(base)) as db:
        fill(db, number - LAST, number, CALLS)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for pages in MERGED:
        yield f"merge, {pages} pages a step", told(_on_copy(base, partial(erase, number=number, pages=pages)))


def _filled(db: sqlite3.Connection, number: int, config: Config) -> list[float]:
    for one in config:
        db.execute("INSERT INTO said_words (said_words, rank) VALUES (?, ?)", one)
    return fill(db, number - LAST, number, CALLS)


def _on_copy(base: Path, work: Callable[[sqlite3.Connection], list[float]]) -> list[float]:
    copy = base.with_name("copy.db")
    shutil.copy(base, copy)
    try:
        with closing(opened(copy)) as db:
            return work(db)
    finally:
        for file in base.parent.glob("copy.db*"):
            file.unlink()


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=600_000)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {"documents": given.documents, "sqlite": sqlite3.sqlite_version, "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, took in measure(Path(folder), given.documents):
            found["cases"][name] = took
            print(f"{name}: {took}", flush=True)
    if given.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
