"""How the rows of a step are laid out in forward passes: the choice of a layout by its name.

Owns: the names, and which code makes the packs of each. Refuses: which layout a base can use
(`trainer.policy.startup_check`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from trainer.batch.packing import Ids, Pack, pack
from trainer.batch.padding import pad_rows


class Layout(StrEnum):
    """How rows share a forward pass; the fewest computed tokens first."""

    PACKED = "packed"  # flat, and a prefix that rows share is computed once
    PADDED = "padded"  # a batch of rows, each padded at its end to the longest
    ALONE = "alone"  # one row a pass


def make_packs(rows: Sequence[Ids], budget: int, layout: Layout) -> list[Pack]:
    """Distribute rows over packs of at most `budget` computed tokens each; every row is in exactly one.

    A row longer than the budget has a pack of its own. A row must not be empty (ValueError). Equal input gives equal
    packs.
    """
    if layout is Layout.PADDED:
        return pad_rows(rows, budget)
    return pack(rows, 0 if layout is Layout.ALONE else budget)
