"""`hone sft`: train a version on demonstrations, or only count them.

Owns: the counts. Refuses: the demonstrations (`trainer.step.fits.demonstration_reader`), and what every fit shares
(`trainer.runtime.fits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proxy.settings.hone import HoneSettings
from trainer.demonstrations.fit_plan import plan_fit
from trainer.runtime.fits import OPEN, FitOutcome, OpenFitTrainer, load_only, make_outcome, run_fit
from trainer.runtime.resolved_settings import trainer_settings
from trainer.step.fits.demonstration_reader import DemonstrationSource, ReadDemonstrations

COMMAND = "hone sft"


@dataclass(frozen=True, slots=True)
class DemonstrationCounts:
    """What a source gives: rows and tokens, and the number of what is excluded by reason."""

    demonstrations: int
    rows: int
    tokens: int  # of all rows
    trained_tokens: int
    rendered_tokens: int  # trained tokens of rows that are not recorded ids
    held_out: int  # demonstrations
    excluded: Mapping[str, int]  # demonstrations
    context: Mapping[str, int]  # answers of used demonstrations that are not imitated
    named: tuple[str, ...]  # the first excluded ones
    overlap: tuple[str, ...]  # rows of a file with a task that is measured

    def as_json(self) -> dict[str, Any]:
        """The counts for JSON."""
        return asdict(self)


def count_demonstrations(read: ReadDemonstrations, held_out: int) -> DemonstrationCounts:
    """Count what was read, of which some are held out."""
    return DemonstrationCounts(
        demonstrations=len(read.found),
        rows=sum(len(one.rows) for one in read.found),
        tokens=sum(one.tokens for one in read.found),
        trained_tokens=sum(one.trained_tokens for one in read.found),
        rendered_tokens=read.rendered_tokens,
        held_out=held_out,
        excluded=dict(sorted(read.left.items())),
        context=dict(sorted(read.skipped.items())),
        named=tuple(read.named),
        overlap=tuple(read.overlap),
    )


async def fine_tune(
    everything: HoneSettings,
    alias: str,
    where: Sequence[str],
    file: Path | None,
    open_with: OpenFitTrainer = OPEN,
) -> FitOutcome[DemonstrationCounts]:
    """Train a version on trajectories that meet the conditions `where`, or on a file.

    Raises as `trainer.runtime.fits.run_fit`, and `DemonstrationsInvalid`, `ConditionInvalid`.
    """
    report = await run_fit(everything, alias, DemonstrationSource(where, file), COMMAND, open_with)
    return make_outcome(report, _count(everything, report.read))


async def count_only(
    everything: HoneSettings, alias: str, where: Sequence[str], file: Path | None
) -> DemonstrationCounts:
    """Count what `fine_tune` would train on, without loading the base."""
    return _count(everything, (await load_only(everything, alias, DemonstrationSource(where, file))).read)


def _count(everything: HoneSettings, read: ReadDemonstrations) -> DemonstrationCounts:
    settings = trainer_settings(everything)
    return count_demonstrations(read, len(plan_fit(read.found, settings.sft.held_out_share, settings.seed).held_out))
