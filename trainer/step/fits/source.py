"""Where the data of a fit come from, as the trainer of an alias asks for them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trainer.objectives.imitate_rows import ImitateBasis
from trainer.settings import TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.step.fits.job import LoadedFit

R = TypeVar("R")


class FitSource(Protocol[R]):
    """Recorded data, or a file."""

    async def load(
        self, context: RowContext, basis: ImitateBasis, settings: TrainerSettings, parent_id: str
    ) -> LoadedFit[R]:
        """Read the data that the ancestry of `parent_id` has not used up, and plan a fit on them."""
