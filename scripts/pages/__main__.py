"""List the pages that differ from the code they are made from, or, with `--write`, update them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts import reasons
from scripts.pages import api, commands, judge_prompt, metrics, request_fields, settings

MADE: Final[Mapping[Path, Callable[[], str]]] = {
    made.PAGE: made.page for made in (settings, commands, api, metrics, reasons, judge_prompt, request_fields)
}


def main(write: bool) -> int:
    """Return the exit status: 1 if a page differs and was not written."""
    behind = {path: text for path, make in MADE.items() if (text := make()) != _now(path)}
    for path, text in behind.items():
        if write:
            path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.name} {'written' if write else 'differs: run `python -m scripts.pages --write`'}\n")
    return 1 if behind and not write else 0


def _now(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv))
