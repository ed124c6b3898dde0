"""Demonstrations for a step or a fit: read from the store or a file.

Owns: which demonstrations join a step and how many, and the counts of what is not imitated. Refuses: the queries
(`trainer.demonstrations.candidates`), rules and rows (`trainer.demonstrations.rows`), weights, torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recorder.queue.training import uses
from trainer.demonstrations.candidates import MOST, CandidateRequest, load_candidates, load_held_out
from trainer.demonstrations.conversations import read_conversations
from trainer.demonstrations.fit_plan import plan_fit
from trainer.demonstrations.rows import demonstrate_conversation, demonstrate_trajectory
from trainer.objectives.imitate import NAME
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis, ImitationExclusion
from trainer.settings import TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.step.fits.job import FitJob, LoadedFit
from trainer.step.fits.objectives import ImitateFit
from trainer.step.fits.read_data import ReadData
from trainer.tasks.conditions import Condition, parse_condition


@dataclass(slots=True)
class ReadDemonstrations(ReadData):
    """Demonstrations with rows."""

    found: list[Demonstration] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # answers of `found` that are context

    @property
    def rendered_tokens(self) -> int:
        """The trained tokens of rendered rows."""
        return sum(one.trained_tokens for one in self.found if one.is_rendered)

    def add(self, one: Demonstration) -> None:
        """Add one, or count it with the reason why nothing of it is imitated."""
        if one.code is None:
            self.found.append(one)
            self.skipped.update(str(skipped.code) for skipped in one.skipped)
        else:
            self.leave(one.code, one.name, one.note)


@dataclass(frozen=True, slots=True)
class DemonstrationSource:
    """Where the demonstrations of a fit come from: traffic that meets all conditions, or a file."""

    where: Sequence[str] = ()
    file: Path | None = None

    async def load(
        self, context: RowContext, basis: ImitateBasis, settings: TrainerSettings, parent_id: str
    ) -> LoadedFit[ReadDemonstrations]:
        """Read the demonstrations, and plan a fit on them. Raises as `ImitationReader.read`."""
        sft = settings.sft
        read = await ImitationReader(context).read(self, basis, epochs=sft.epochs, parent_id=parent_id)
        plan = plan_fit(read.found, sft.held_out_share, settings.seed)
        why = f"no demonstration can be imitated{read.excluded}"
        return LoadedFit(read, FitJob(plan, ImitateFit(), sft), why, imitation_metrics(read))


class ImitationReader:
    """Reads the demonstrations of an alias."""

    def __init__(self, context: RowContext) -> None:
        self._context = context

    async def read(
        self, source: DemonstrationSource, basis: ImitateBasis, *, epochs: int, parent_id: str
    ) -> ReadDemonstrations:
        """Read all demonstrations of a source. Raises as the next two."""
        if source.file is not None:
            return await self.from_file(source.file, basis, epochs=epochs, parent_id=parent_id)
        return await self.from_traffic(source.where, basis, epochs=epochs, parent_id=parent_id)

    async def from_traffic(
        self, where: Sequence[str], basis: ImitateBasis, *, epochs: int, parent_id: str, limit: int = MOST
    ) -> ReadDemonstrations:
        """Read at most `limit` recorded trajectories that meet all conditions, the newest first.

        Raises `ConditionInvalid`.
        """
        request = CandidateRequest(parse_conditions(where), NAME, epochs, parent_id, limit)
        held_out = await load_held_out(self._context.project.store, self._context.alias.id)
        candidates = await load_candidates(self._context.project, self._context.alias, request, held_out)
        read = ReadDemonstrations(left=candidates.left)
        template = await self._context.find_template()
        for view in candidates.found:
            read.add(await self._context.run(demonstrate_trajectory, view, basis, template))
        return read

    async def from_file(self, file: Path, basis: ImitateBasis, *, epochs: int, parent_id: str) -> ReadDemonstrations:
        """Read a file. Raises `DemonstrationsInvalid`, and `TrainerError` if the base has no chat template."""
        given = await self._context.run(read_conversations, file)
        held_out = await load_held_out(self._context.project.store, self._context.alias.id)
        used = await uses.count_uses(self._context.project.store, NAME, [one.source_id for one in given], parent_id)
        template = await self._context.require_template()
        read = ReadDemonstrations()
        seen: set[str] = set()
        for one in given:
            if one.source_id in seen or used.get(one.source_id, 0) >= epochs:
                code = ImitationExclusion.DUPLICATE if one.source_id in seen else ImitationExclusion.ALREADY_USED
                read.leave(code, one.name)
                continue
            seen.add(one.source_id)
            made = await self._context.run(demonstrate_conversation, one, basis, template)
            if made.task in held_out.inputs:
                read.overlap.append(one.name)
            read.add(made)
        return read


def parse_conditions(where: Sequence[str]) -> list[Condition]:
    """Read conditions on demonstrations. Raises `ConditionInvalid`."""
    return [parse_condition(text, of_groups=True) for text in where]


def imitation_metrics(read: ReadDemonstrations) -> dict[str, float]:
    """The metrics of a step that imitates, by their names in a report."""
    return {"demonstrations": float(len(read.found)), "rendered_tokens": float(read.rendered_tokens)}
