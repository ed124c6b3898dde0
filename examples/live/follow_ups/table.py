"""Make the table of measured sessions of users who write back, for README.md, from `measured/follow_ups/`.

    python -m examples.live.follow_ups.table            # print it
    python -m examples.live.follow_ups.table --write    # write it into README.md

Owns: the table. Refuses: measuring (`examples.live.follow_ups.run`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.live.follow_ups.arms import ARMS, ArmName
from examples.live.follow_ups.results import MINUTES, Result, read_results
from examples.running.command import SEEDS
from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

README: Final = Path(__file__).parent.parent / "README.md"
MARKS: Final = Marks("python -m examples.live.follow_ups.table --write")
SHOWN: Final = (4, 8, 12, 16)  # minutes between the beginning and the end
_HEAD: Final = (
    "arm", "seed", "before", *(f"{minute} min" for minute in SHOWN), f"after {MINUTES:.0f} min", "time to 85 %",
    "rewards", "of them true", "imitated", "versions live / rejected", "faults",
)  # fmt: skip


def table(results: Sequence[Result]) -> str:
    """Return the table in Markdown, and a line for each arm that lacks seeds."""
    rows = [_row(one) for one in results]
    lines = [_lacking(arm, {int(one["seed"]) for one in results if one["arm"] == arm}) for arm in ARMS]
    return "\n".join([*([markdown(_HEAD, rows)] if rows else []), *(line for line in lines if line)])


def _row(one: Result) -> list[str]:
    points = one["held_out"]
    between = [_share(min(points, key=lambda point: abs(point["second"] - minute * 60))) for minute in SHOWN]
    rewards = one["rewards"]
    return [
        f"`{one['arm']}`",
        str(one["seed"]),
        _share(points[0]),
        *between,
        f"{_share(points[-1])} ({points[-1]['low']:.0%}–{points[-1]['high']:.0%})",
        "not reached" if one["seconds_to_target"] is None else f"{one['seconds_to_target'] / 60:.0f} min",
        str(rewards["given"]) if rewards["given"] else "of single turns",
        f"{rewards['true'] / rewards['given']:.0%}" if rewards["given"] else "–",
        str(one["imitated"]),
        f"{one['versions_live']} / {one['versions_refused']}",
        str(len(one["faults"])),
    ]


def _share(point: Result) -> str:
    return "none" if point["success"] is None else f"{point['success']:.1%}"


def _lacking(arm: ArmName, seeds: set[int]) -> str:
    lacking = [str(seed) for seed in SEEDS if seed not in seeds]
    return f"- `{arm}` is not measured yet with seed {', '.join(lacking)}." if lacking else ""


def write() -> None:
    """Write the table of the committed results into README.md."""
    MARKS.write(README, table(read_results()))


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="Make the table of measured sessions of users who write back.")
    parser.add_argument("--write", action="store_true", help="write it into README.md")
    if parser.parse_args().write:
        write()
    else:
        print(table(read_results()), end="")


if __name__ == "__main__":
    main()
