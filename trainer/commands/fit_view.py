"""What `hone sft` and `hone dpo` print alike: what is excluded, the epochs, and the version.

Refuses: counting (`trainer.runtime.sft`, `trainer.runtime.dpo`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from recorder.base.terminal import echo, format_number, show_table

if TYPE_CHECKING:
    from trainer.runtime.fits import FitOutcome

_SHOWN = 10


class ExcludedData(Protocol):
    """The counts of what a source gives."""

    @property
    def excluded(self) -> Mapping[str, int]:
        """The number of excluded data by reason."""

    @property
    def named(self) -> Sequence[str]:
        """The first of them."""

    @property
    def overlap(self) -> Sequence[str]:
        """The rows of a file with a task that is measured."""


def show_excluded(rows: Sequence[tuple[str, str, int]], counts: ExcludedData) -> None:
    """Print what is excluded and why, and what overlaps with measured tasks. `rows`: what, reason and count."""
    if rows:
        show_table(("excluded", "reason", "count"), rows, right=("count",))
    for name in counts.named[:_SHOWN]:
        echo(f"Excluded: {name}")
    if (more := sum(counts.excluded.values()) - len(counts.named[:_SHOWN])) > 0:
        echo(f"… and {more} more")
    if counts.overlap:
        echo(
            f"{len(counts.overlap)} rows have a task of a validation or test part, so measurements of the version are "
            f"not independent of them: {', '.join(counts.overlap[:_SHOWN])}."
        )


def show_outcome(outcome: FitOutcome[Any], alias: str) -> None:
    """Print the epochs, and the version or why there is none."""
    if outcome.epochs:
        _show_epochs(outcome)
    if outcome.notice is not None:
        echo(outcome.notice)
    if outcome.version is None:
        echo(f"No version was made: {outcome.reason}.")
        return
    echo(
        f"{outcome.version} is written, from epoch {outcome.best_epoch}. The proxy loads it, checks it, and puts it "
        f"into service; `hone versions {alias}` shows it."
    )


def _show_epochs(outcome: FitOutcome[Any]) -> None:
    names = list(outcome.epochs[0].trained)
    columns = ("epoch", *names, *(f"held-out {name}" for name in names))
    rows = [_row(one.epoch, names, one.trained, one.held_out) for one in outcome.epochs]
    if outcome.held_out_before is not None:
        rows.insert(0, _row(0, names, None, outcome.held_out_before))
    show_table(columns, rows, right=columns)


def _row(
    epoch: int, names: Sequence[str], trained: Mapping[str, float] | None, held_out: Mapping[str, float] | None
) -> tuple[int | str, ...]:
    return (epoch, *(format_number((figures or {}).get(name)) for figures in (trained, held_out) for name in names))
