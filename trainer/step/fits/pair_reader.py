"""Pairs for a fit: read from the store or a file, and the version that is their reference.

Owns: the counts of what is excluded, and finding the reference. Refuses: the queries
(`trainer.preferences.candidates`), which pairs there are and their rules (`trainer.preferences.pairs`), weights, torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recorder.errors import NotFound
from recorder.messages.trainability import Exclusion
from recorder.queue.training import uses
from recorder.registry import versions
from recorder.views.trajectories.transcripts import load_trajectories
from trainer.demonstrations.candidates import HeldOutScenarios, load_held_out, why_not_trained_on
from trainer.demonstrations.fit_plan import plan_fit
from trainer.demonstrations.rows import demonstrate_trajectory
from trainer.errors import TrainerError
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis, ImitationExclusion
from trainer.objectives.prefer import NAME, PreferencePair
from trainer.preferences.candidates import load_candidates
from trainer.preferences.conditions import PairSelection, parse_side_conditions
from trainer.preferences.pair_files import read_pairs
from trainer.preferences.pairs import PairCandidate, pair_row, pair_trajectories
from trainer.settings import DpoSettings, TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.step.fits.job import FitJob, LoadedFit, ReferenceAdapter
from trainer.step.fits.objectives import PreferFit
from trainer.step.fits.read_data import ReadData

_PAGE: Final = 25  # pairs whose trajectories are in memory at a time


@dataclass(slots=True)
class ReadPairs(ReadData):
    """Pairs with rows."""

    found: list[PreferencePair] = field(default_factory=list)

    @property
    def sources(self) -> Counter[str]:
        """The number of pairs by where they come from."""
        return Counter(one.source for one in self.found)

    @property
    def rendered_tokens(self) -> int:
        """The trained tokens of rendered rows."""
        sides = [side for one in self.found for side in (one.chosen, one.rejected)]
        return sum(side.trained_tokens for side in sides if side.is_rendered)

    def add(self, one: PreferencePair) -> None:
        """Add one, or count it with the reason why it is not trained on."""
        if one.code is None:
            self.found.append(one)
        else:
            self.leave(one.code, one.name, one.note)


@dataclass(frozen=True, slots=True)
class PairSource:
    """Where the pairs of a fit come from: what is recorded of the alias and meets the conditions, or a file."""

    file: Path | None = None
    where: Sequence[str] = ()

    async def load(
        self, context: RowContext, basis: ImitateBasis, settings: TrainerSettings, parent_id: str
    ) -> LoadedFit[ReadPairs]:
        """Read the pairs, and plan a fit on them. Raises as `PairReader.read`, and `TrainerError` for a reference that
        is not there.
        """
        dpo = settings.dpo
        reference = await find_reference(context, dpo)
        read = await PairReader(context).read(self, basis, dpo, parent_id)
        plan = plan_fit(read.found, dpo.held_out_share, settings.seed)
        metrics = {"pairs": float(len(read.found)), "rendered_tokens": float(read.rendered_tokens)}
        job = FitJob(plan, PreferFit(dpo.beta), dpo, reference)
        return LoadedFit(read, job, f"no pair can be trained on{read.excluded}", metrics)


class PairReader:
    """Reads the pairs of an alias."""

    def __init__(self, context: RowContext) -> None:
        self._context = context

    async def read(self, source: PairSource, basis: ImitateBasis, settings: DpoSettings, parent_id: str) -> ReadPairs:
        """Read all pairs of a source. Raises as the next two."""
        if source.file is not None:
            return await self.from_file(source.file, basis, epochs=settings.epochs, parent_id=parent_id)
        return await self.from_record(
            source.where, basis, margin=settings.margin, epochs=settings.epochs, parent_id=parent_id
        )

    async def from_record(
        self, where: Sequence[str], basis: ImitateBasis, *, margin: float, epochs: int, parent_id: str,
        limit: int | None = None,
    ) -> ReadPairs:  # fmt: skip
        """Read the pairs of what people prefer, and then of the rankings of scored groups, each the newest first.

        `where`: conditions that their sides meet. `limit`: so many at most, without a count of those that are used up.
        Raises `ConditionInvalid`.
        """
        context = self._context
        selection = PairSelection(context.project.store, parse_side_conditions(where))
        held_out = await load_held_out(context.project.store, context.alias.id)
        candidates = await load_candidates(
            context.project, context.alias, margin=margin, epochs=epochs, parent_id=parent_id
        )
        read = ReadPairs()
        if limit is None:
            codes = {pair.source_id: code for pair, code in candidates.excluded}
            selected = await selection.select([pair for pair, _ in candidates.excluded])
            read.left.update(str(codes[one.source_id]) for one in selected)
        sides = _Sides(context, basis, held_out)
        most = len(candidates.found) if limit is None else limit
        size = max(1, min(_PAGE, most))
        for at in range(0, len(candidates.found), size):
            page = await selection.select(candidates.found[at : at + size])
            await sides.load(page)
            for pair in page:
                if (code := sides.why_not(pair)) is not None:
                    read.leave(code, f"{pair.chosen} over {pair.rejected}")
                else:
                    read.add(sides.pair(pair))
                if len(read.found) >= most:
                    return read
        return read

    async def from_file(self, file: Path, basis: ImitateBasis, *, epochs: int, parent_id: str) -> ReadPairs:
        """Read a file. Raises `DemonstrationsInvalid`, and `TrainerError` if the base has no chat template."""
        context = self._context
        given = await context.run(read_pairs, file)
        held_out = await load_held_out(context.project.store, context.alias.id)
        used = await uses.count_uses(context.project.store, NAME, [one.source_id for one in given], parent_id)
        template = await context.require_template()
        read = ReadPairs()
        seen: set[str] = set()
        for one in given:
            if one.source_id in seen or used.get(one.source_id, 0) >= epochs:
                code = ImitationExclusion.DUPLICATE if one.source_id in seen else ImitationExclusion.ALREADY_USED
                read.leave(code, one.name)
                continue
            seen.add(one.source_id)
            made = await context.run(pair_row, one, basis, template)
            if made.task in held_out.inputs:
                read.overlap.append(one.name)
            read.add(made)
        return read


class _Sides:
    """The trajectories of pairs as rows, each made once, however many pairs it is in."""

    def __init__(self, context: RowContext, basis: ImitateBasis, held_out: HeldOutScenarios) -> None:
        self._context = context
        self._basis = basis
        self._held_out = held_out
        self._made: dict[str, Demonstration] = {}
        self._groups: dict[str, str | None] = {}
        self._why_not: dict[str, str] = {}  # by trajectory

    async def load(self, pairs: Sequence[PairCandidate]) -> None:
        """Make the sides of some pairs."""
        ids = dict.fromkeys(id_ for id_ in _ids(pairs) if id_ not in self._made and id_ not in self._why_not)
        views = await load_trajectories(self._context.project.store, list(ids), with_tokens=True)
        template = await self._context.find_template()
        self._why_not |= dict.fromkeys(ids.keys() - {view.id for view in views}, str(Exclusion.DELETED))
        for view in views:
            if (code := why_not_trained_on(view, self._held_out)) is not None:
                self._why_not[view.id] = str(code)
                continue
            self._made[view.id] = await self._context.run(demonstrate_trajectory, view, self._basis, template)
            self._groups[view.id] = view.group_id

    def why_not(self, pair: PairCandidate) -> str | None:
        """Why a trajectory of a pair may not be trained on, whatever its answers are."""
        return next((self._why_not[id_] for id_ in _ids([pair]) if id_ in self._why_not), None)

    def pair(self, pair: PairCandidate) -> PreferencePair:
        """The pair as rows."""
        group, other = (self._groups[id_] for id_ in _ids([pair]))
        made = self._made[pair.chosen], self._made[pair.rejected]
        return pair_trajectories(pair, *made, same_group=group is not None and group == other)


def _ids(pairs: Sequence[PairCandidate]) -> Iterator[str]:
    return (id_ for pair in pairs for id_ in (pair.chosen, pair.rejected))


async def find_reference(context: RowContext, settings: DpoSettings) -> ReferenceAdapter | None:
    """Return the version that is the reference; None: the base. Raises `TrainerError` if it cannot be used."""
    name = settings.reference
    if name == "base":
        return None
    where = f"trainer.dpo.reference is {name!r}"
    try:
        version = await versions.get_version_by_name(context.project, name)
    except NotFound as e:
        raise TrainerError(f"{where}: {e}") from e
    if version.alias_id != context.alias.id:
        raise TrainerError(f"{where}: it is no version of the alias {context.alias.name!r}. Name one of its own.")
    if version.number == 0:
        return None
    path = Path(version.path) if version.path is not None else None
    if path is None or not await context.run(path.exists):
        raise TrainerError(
            f"{where}: its adapter is not on disk any more (trainer.keep_versions). Name a version that is kept, or "
            "base."
        )
    return ReferenceAdapter(name, path, version.manifest_sha256)
