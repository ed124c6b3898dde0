"""`hone dpo`: train a version on pairs of a chosen and a rejected answer, or only count them.

Owns: the counts. Refuses: the pairs (`trainer.step.fits.pair_reader`), and what every fit shares
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
from trainer.step.fits.pair_reader import PairSource, ReadPairs

COMMAND = "hone dpo"


@dataclass(frozen=True, slots=True)
class PairCounts:
    """What a source gives: pairs and tokens, and the number of what is excluded by reason."""

    pairs: int
    sources: Mapping[str, int]  # pairs by where they come from: preference, ranking, file
    rows: int
    tokens: int  # of all rows
    chosen_tokens: int  # trained
    rejected_tokens: int
    rendered_tokens: int  # trained tokens of rows that are not recorded ids
    held_out: int  # pairs
    excluded: Mapping[str, int]  # pairs
    named: tuple[str, ...]  # the first excluded ones
    overlap: tuple[str, ...]  # rows of a file with a task that is measured

    def as_json(self) -> dict[str, Any]:
        """The counts for JSON."""
        return asdict(self)


def count_pairs(read: ReadPairs, held_out: int) -> PairCounts:
    """Count what was read, of which some are held out."""
    return PairCounts(
        pairs=len(read.found),
        sources=dict(sorted(read.sources.items())),
        rows=sum(len(one.rows) for one in read.found),
        tokens=sum(one.tokens for one in read.found),
        chosen_tokens=sum(one.chosen.trained_tokens for one in read.found),
        rejected_tokens=sum(one.rejected.trained_tokens for one in read.found),
        rendered_tokens=read.rendered_tokens,
        held_out=held_out,
        excluded=dict(sorted(read.left.items())),
        named=tuple(read.named),
        overlap=tuple(read.overlap),
    )


async def train_on_pairs(
    everything: HoneSettings,
    alias: str,
    where: Sequence[str],
    file: Path | None,
    open_with: OpenFitTrainer = OPEN,
) -> FitOutcome[PairCounts]:
    """Train a version on the recorded pairs of an alias whose sides meet the conditions `where`, or on a file.

    Raises as `trainer.runtime.fits.run_fit`, and `DemonstrationsInvalid`, `ConditionInvalid`.
    """
    report = await run_fit(everything, alias, PairSource(file, where), COMMAND, open_with)
    return make_outcome(report, _count(everything, report.read))


async def count_only(everything: HoneSettings, alias: str, where: Sequence[str], file: Path | None) -> PairCounts:
    """Count what `train_on_pairs` would train on, without loading the base."""
    return _count(everything, (await load_only(everything, alias, PairSource(file, where))).read)


def _count(everything: HoneSettings, read: ReadPairs) -> PairCounts:
    settings = trainer_settings(everything)
    return count_pairs(read, len(plan_fit(read.found, settings.dpo.held_out_share, settings.seed).held_out))
