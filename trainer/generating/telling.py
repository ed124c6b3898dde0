"""What `hone scenarios generate` says: how it goes on, what came of it, as text and as JSON.

Owns: the words and the shape. Refuses: printing (`trainer.commands`). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainer.generating.asking import Spent
from trainer.generating.generate import Generated, Wanted
from trainer.tasks.scenarios import line


def so_far(found: Generated, wanted: Wanted) -> str:
    """One line while it goes on."""
    dropped = f", {found.dropped.total()} dropped" if found.dropped else ""
    return f"{len(found.scenarios)} of {wanted.total} scenarios{dropped}"


def stopped(found: Generated, wanted: Wanted, out: Path | None) -> str:
    """What is left where a signal ended it."""
    there = f"{len(found.scenarios)} of {wanted.total} scenarios"
    if out is None or not found.scenarios:
        return f"stopped: {there} were made"
    return f"stopped: {there} are in {out}; the same command goes on from here"


def summary(found: Generated, wanted: Wanted, spent: Spent) -> Iterator[str]:
    """What came of it, line by line."""
    yield f"{so_far(found, wanted)}: {_counted(found.of_kind)}"
    if found.dropped:
        yield f"dropped: {_counted(found.dropped)}"
    if wanted.absent:
        yield f"not marked read-only, so left out (--allow-writes): {', '.join(wanted.absent)}"
    if found.missing:
        yield f"missing: {_counted(found.missing)}"
    yield from found.notes
    usd = "" if spent.usd is None else f", ${spent.usd:,.4f}"
    yield f"{spent.requests} requests, {spent.tokens_in:,} tokens in, {spent.tokens_out:,} out{usd}"


def as_json(found: Generated, wanted: Wanted, spent: Spent, written: Path | None, *, stopped: bool) -> dict[str, Any]:
    """The same for scripts, with the scenarios."""
    return {
        "scenarios": [json.loads(line(one)) for one in found.scenarios],
        "wanted": wanted.total,
        "of_kind": _plain(found.of_kind),
        "dropped": _plain(found.dropped),
        "missing": _plain(found.missing),
        "tools_left_out": list(wanted.absent),
        "notes": list(found.notes),
        "spent": asdict(spent),
        "stopped": stopped,
        "written": str(written) if written is not None else None,
    }


def _plain(counted: Mapping[Any, int]) -> dict[str, int]:
    return {str(name): count for name, count in counted.items()}


def _counted(counted: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items())
