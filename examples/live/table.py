"""Make the table of measured sessions in README.md from their summaries in `measured/`.

    python -m examples.live.table            # print it
    python -m examples.live.table --write    # write it into README.md

Owns: its figures, and the definition of a fall. Refuses: measuring (`examples.live.live`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

HERE: Final = Path(__file__).parent
README: Final = HERE / "README.md"
MARKS: Final = Marks("python -m examples.live.table --write")
MINUTES_BEFORE: Final = 2  # minutes before a judge's swap: the reference for the fall
_HEAD: Final = (
    "traffic", "seed", "minutes", "users' trajectories", "right at first", "right in the last minute",
    "held-out orders before → after", "versions live / rejected", "faults",
)  # fmt: skip

Summary = Mapping[str, Any]


def measured() -> list[Summary]:
    """Return the committed summaries, by traffic and seed."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (HERE / "measured").glob("*.json")]
    return sorted(found, key=lambda one: (str(one["traffic"]), int(one["seed"])))


def fall(summary: Summary) -> tuple[float, float]:
    """Return success in the minutes before the first swap of the judge, and in the worst minute since."""
    swapped = int(summary["notes"][0]["second"] // 60)
    minutes: Sequence[Summary] = summary["by_minute"]
    before = minutes[max(0, swapped - MINUTES_BEFORE) : swapped]
    return sum(m["right"] for m in before) / sum(m["runs"] for m in before), min(
        m["success"] for m in minutes[swapped:]
    )


def table(summaries: Sequence[Summary]) -> str:
    """Return the table in Markdown, then one line for each session with a swapped judge."""
    falls = [_fell(one) for one in summaries if one["notes"]]
    return "\n".join([markdown(_HEAD, map(_row, summaries)), *falls])


def _row(one: Summary) -> list[str]:
    before, after = one["held_out"]["before"], one["held_out"]["after"]
    return [
        f"`{one['traffic']}`",
        str(one["seed"]),
        f"{one['minutes']:.0f}",
        str(one["runs"]),
        _share(one["first_version"]),
        _share(one["last_minute"]),
        f"{_share(before)} → {_share(after)}",
        f"{one['versions_live']} / {one['versions_refused']}",
        str(len(one["faults"])),
    ]


def _share(share: Summary) -> str:
    return f"{share['success']:.1%} ({share['low']:.0%}–{share['high']:.0%})"


def _fell(one: Summary) -> str:
    before, worst = fall(one)
    return (
        f"- seed {one['seed']}, judge swapped: {before:.1%} in the {MINUTES_BEFORE} minutes before, {worst:.1%} in the "
        f"worst minute since, {one['last_minute']['success']:.1%} in the last."
    )


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="Make the table of measured sessions.")
    parser.add_argument("--write", action="store_true", help="write it into README.md")
    if parser.parse_args().write:
        MARKS.write(README, table(measured()))
    else:
        print(table(measured()), end="")


if __name__ == "__main__":
    main()
