"""Data that join a step on groups: demonstrations to imitate and pairs to prefer, by `trainer.objectives`, and earlier
trajectories that are repeated, by `trainer.rehearsal`.

Owns: how many join, and what they used. Refuses: reading them (`trainer.step.fits.demonstration_reader`,
`trainer.step.fits.pair_reader`, `trainer.step.fits.rehearsal_reader`), and weights (`trainer.objectives`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recorder.queue.training.uses import ObjectiveUse
from trainer.objectives import imitate, rehearsal
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis
from trainer.objectives.prefer import PreferencePair
from trainer.preferences.conditions import parse_side_conditions
from trainer.settings import ObjectiveSettings, TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.step.fits.demonstration_reader import ImitationReader, imitation_metrics, parse_conditions
from trainer.step.fits.job import ReferenceAdapter
from trainer.step.fits.objectives import pair_uses
from trainer.step.fits.pair_reader import PairReader, ReadPairs, find_reference
from trainer.step.fits.rehearsal_reader import RehearsalReader


@dataclass(frozen=True, slots=True)
class JoinedData:
    """What is in a step beside its groups. `reference`: of the pairs; None: the base. `metrics`: of the step."""

    demonstrations: Sequence[Demonstration] = ()
    pairs: Sequence[PreferencePair] = ()
    rehearsal: Sequence[Demonstration] = ()
    reference: ReferenceAdapter | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def uses(self) -> list[ObjectiveUse]:
        """What the step used of each objective."""
        imitated = ((imitate.NAME, self.demonstrations), (rehearsal.NAME, self.rehearsal))
        uses = [ObjectiveUse(name, one.kind, one.source_id) for name, some in imitated for one in some]
        return [*uses, *pair_uses(self.pairs)]


class DataJoiner:
    """Reads what joins the steps of an alias."""

    def __init__(self, context: RowContext, settings: TrainerSettings) -> None:
        self._context = context
        self._settings = settings
        self._imitate = settings.find_objective("imitate")
        self._prefer = settings.find_objective("prefer")

    @property
    def is_needed(self) -> bool:
        """Whether the settings let anything join."""
        return self._imitate is not None or self._prefer is not None or self._settings.rehearsal > 0

    async def check(self) -> None:
        """Raise `TrainerError` for a reference that cannot be used."""
        if self._prefer is not None:
            await find_reference(self._context, self._settings.dpo)

    async def read(self, basis: ImitateBasis, parent_id: str, most: int) -> JoinedData:
        """Read what the ancestry of `parent_id` has not used up. Raises as `check`.

        `most`: the trajectories that the step's groups train. At most as many are imitated, and at most as many are in
        pairs, but one pair always may.
        """
        metrics: dict[str, float] = {}
        demonstrations: Sequence[Demonstration] = ()
        pairs: Sequence[PreferencePair] = ()
        reference = None
        if (own := self._imitate) is not None:
            read = await ImitationReader(self._context).from_traffic(
                own.conditions, basis, epochs=own.epochs, parent_id=parent_id, limit=most
            )
            demonstrations = read.found
            metrics |= imitation_metrics(read)
        if (own := self._prefer) is not None:
            reference = await find_reference(self._context, self._settings.dpo)
            found = await self._read_pairs(own, basis, parent_id, max(1, most // 2))
            pairs = found.found
            metrics["pairs"] = float(len(pairs))
            metrics["rendered_tokens"] = metrics.get("rendered_tokens", 0.0) + found.rendered_tokens
        repeated: Sequence[Demonstration] = ()
        if number := rehearsal.rehearsal_size(most, self._settings.rehearsal):
            repeated = await RehearsalReader(self._context, self._settings.seed).read(parent_id, number, basis)
            metrics["rehearsal"] = float(len(repeated))
        return JoinedData(demonstrations, pairs, repeated, reference, metrics)

    async def _read_pairs(self, own: ObjectiveSettings, basis: ImitateBasis, parent_id: str, limit: int) -> ReadPairs:
        return await PairReader(self._context).from_record(
            own.conditions,
            basis,
            margin=self._settings.dpo.margin,
            epochs=own.epochs,
            parent_id=parent_id,
            limit=limit,
        )


def check_conditions(settings: TrainerSettings) -> None:
    """Raise `ConditionInvalid` for conditions of an objective that cannot be read."""
    for one in settings.objectives:
        if one.name == "prefer":
            parse_side_conditions(one.conditions)
        else:
            parse_conditions(one.conditions)
