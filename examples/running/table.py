"""Make the tables of the examples' committed results: one in each README, and one for all in docs/examples.md.

    python -m examples.running.table            # print all
    python -m examples.running.table --write    # write them into the pages

Owns: the figures of the tables. Refuses: measuring (`examples.running.command`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from examples.running.programs import ROOT
from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

EXAMPLES: Final = ROOT / "examples"
PAGE: Final = ROOT / "docs" / "examples.md"
MARKS: Final = Marks("python -m examples.running.table --write")
_HEAD: Final = ("seed", "held-out success before → after", "attempts", "steps", "time", "judge requests", "faults")

Summary = Mapping[str, Any]


def measured(folder: Path) -> list[Summary]:
    """Return an example's committed summaries, by seed: `measured/SEED.json`."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "measured").glob("[0-9]*.json")]
    return sorted(found, key=lambda one: int(one["seed"]))


def all_measured() -> dict[str, list[Summary]]:
    """Return every example that has committed summaries, by name."""
    found = {folder.name: measured(folder) for folder in sorted(EXAMPLES.iterdir()) if folder.is_dir()}
    return {name: summaries for name, summaries in found.items() if summaries}


def table(summaries: Iterable[Summary]) -> str:
    """Return one example's results in Markdown."""
    return markdown(_HEAD, [_row(one) for one in summaries])


def table_of_all(found: Mapping[str, Sequence[Summary]]) -> str:
    """Return the results of all examples in Markdown."""
    rows = [[f"`{name}`", *_row(one)] for name, summaries in found.items() for one in summaries]
    return markdown(("example", *_HEAD), rows)


def _row(one: Summary) -> list[str]:
    before, after = one["before"], one["after"]
    return [
        str(one["seed"]),
        f"{_share(before)} → {_share(after)}",
        f"{before['attempts']} and {after['attempts']}",
        str(len(one["steps"])),
        f"{one['seconds']:.0f} s",
        _requests(one["judge"]),
        str(len(one["faults"])),
    ]


def _requests(judge: Mapping[str, Any]) -> str:
    """Return the number of requests to the judge; if a summary lacks it, the number of judged groups."""
    return f"{judge['groups']} groups" if judge["requests"] is None else str(judge["requests"])


def _share(share: Summary) -> str:
    if share["success"] is None:
        return "not measured"
    return f"{share['success']:.1%} ({share['low']:.1%}–{share['high']:.1%})"


def pages() -> dict[Path, str]:
    """Return the text of each page that has a table, with the table up to date."""
    found = all_measured()
    wanted = {EXAMPLES / name / "README.md": table(summaries) for name, summaries in found.items()}
    wanted[PAGE] = table_of_all(found)
    return {page: MARKS.put(page.read_text("utf-8"), made) for page, made in wanted.items() if page.exists()}


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description="Make the tables of the examples' committed results.")
    parser.add_argument("--write", action="store_true", help="write them into the READMEs and docs/examples.md")
    if not parser.parse_args().write:
        print(table_of_all(all_measured()), end="")
        return
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
