"""The table of bases and cards in docs/models.md: `python -m scripts.models_page --write` computes and writes it.

It takes about a minute of CPU. Refuses: anything that was measured on a card (docs/gpu.md).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from recorder.models.base_model import read_base_model
from recorder.models.shipped_configs import SHIPPED
from trainer.memory.cards import Card
from trainer.memory.needs import EngineFacts, MeasuredBase, measure_base
from trainer.memory.placement import place
from trainer.settings import TrainerSettings

PAGE: Final = Path(__file__).parent.parent / "docs" / "models.md"
BEGIN, END = "<!-- table: python -m scripts.models_page --write -->", "<!-- end of the table -->"
BASES: Final = (
    "Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Qwen3-32B", "Qwen3-30B-A3B",
)  # fmt: skip
GIB: Final = (24, 48, 80, 141)
BUDGETS: Final = (32_768, 16_384, 8192, 4096, 2048)


def cell(base: MeasuredBase, gib: int) -> str:
    """The largest of `BUDGETS` on one card for both, and on a card each."""
    card, settings, facts = Card(f"{gib} GiB", float(gib)), TrainerSettings(), EngineFacts()
    found = []
    for is_shared in (True, False):
        fitting = (
            tokens
            for tokens in BUDGETS
            if place(
                base.trainer(tokens), base.engine(tokens, facts, settings.rank), card, is_shared=is_shared,
                elsewhere=False,
            ).fits
        )  # fmt: skip
        best = next(fitting, None)
        found.append("–" if best is None else f"{best:,}")
    return " / ".join(found)


def table() -> str:
    """The table in Markdown."""
    lines = [f"| base | {' | '.join(f'{gib} GB' for gib in GIB)} |", "|---" * (len(GIB) + 1) + "|"]
    for name in BASES:
        profile = read_base_model(SHIPPED / name, name=name, needs_weights=False)
        base = measure_base(profile, TrainerSettings(), max(BUDGETS))
        lines.append(f"| {name} | {' | '.join(cell(base, gib) for gib in GIB)} |")
    return "\n".join(lines)


def page_with_table(page: str, made: str) -> str:
    """The page with another table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Print the table, or write it into the page."""
    made = table()
    if "--write" in sys.argv:
        PAGE.write_text(page_with_table(PAGE.read_text("utf-8"), made), "utf-8")
    else:
        sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    main()
