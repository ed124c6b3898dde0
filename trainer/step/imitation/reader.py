"""Demonstrations for a step or a fit: read from the store or a file, as rows of the base in memory.

Owns: which demonstrations join a step and how many, and the counts of what is not imitated. Refuses: the queries
(`trainer.demonstrations.candidates`), rules and rows (`trainer.demonstrations.rows`), weights, torch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recorder.queue.training import uses
from recorder.registry.aliases import AliasView
from recorder.store.database import Project
from trainer.batch.recorded_text import TextCheck
from trainer.batch.rows import FitsAlone
from trainer.demonstrations.candidates import MOST, CandidateRequest, load_candidates, load_held_out
from trainer.demonstrations.chat_template import ChatTemplate
from trainer.demonstrations.conversations import read_conversations
from trainer.demonstrations.rows import demonstrate_conversation, demonstrate_trajectory
from trainer.errors import TrainerError
from trainer.objectives.imitate import NAME
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis, ImitationExclusion
from trainer.tasks.conditions import Condition, parse_condition

MOST_NAMED: Final = 20
Run = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class ReadDemonstrations:
    """Demonstrations with rows; the number of others by reason, and the first of them by name; and the rows of a file
    whose task is a scenario that is measured.
    """

    found: list[Demonstration] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    overlap: list[str] = field(default_factory=list)
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

    def leave(self, code: str, name: str, note: str | None = None) -> None:
        """Count one that is not imitated."""
        self.left[str(code)] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{name}: {code}" + (f" ({note})" if note else ""))


@dataclass(frozen=True, slots=True)
class DemonstrationSource:
    """Where the demonstrations of a fit come from: traffic that meets all conditions, or a file."""

    where: Sequence[str] = ()
    file: Path | None = None


class ImitationReader:
    """Reads the demonstrations of an alias. `template_file`: the engine's chat template, if it is not the base's."""

    def __init__(
        self, project: Project, alias: AliasView, base: Path, template_file: Path | None, run: Run = asyncio.to_thread
    ) -> None:
        """`run`: runs work that takes long, off the event loop."""
        self._project = project
        self._alias = alias
        self._base = base
        self._template_file = template_file
        self._run = run
        self._template: ChatTemplate | None = None
        self._why_no_template: TrainerError | None = None

    def basis(
        self, fingerprint: str | None, max_tokens: int, text: TextCheck | None, fits_alone: FitsAlone | None = None
    ) -> ImitateBasis:
        """Return what rows are made with. It may load the tokenizer: not for the event loop."""
        template = self._load_template()
        tool_mark = None if template is None else template.tool_mark
        return ImitateBasis(fingerprint, max_tokens, text, tool_mark, fits_alone)

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
        held_out = await load_held_out(self._project.store, self._alias.id)
        candidates = await load_candidates(self._project, self._alias, request, held_out)
        read = ReadDemonstrations(left=candidates.left)
        template = await self._run(self._load_template)
        for view in candidates.found:
            read.add(await self._run(demonstrate_trajectory, view, basis, template))
        return read

    async def from_file(self, file: Path, basis: ImitateBasis, *, epochs: int, parent_id: str) -> ReadDemonstrations:
        """Read a file. Raises `DemonstrationsInvalid`, and `TrainerError` if the base has no chat template."""
        given = await self._run(read_conversations, file)
        held_out = await load_held_out(self._project.store, self._alias.id)
        used = await uses.count_uses(self._project.store, NAME, [one.source_id for one in given], parent_id)
        template = await self._run(self._load_template)
        if template is None:
            assert self._why_no_template is not None
            raise self._why_no_template
        read = ReadDemonstrations()
        seen: set[str] = set()
        for one in given:
            if one.source_id in seen or used.get(one.source_id, 0) >= epochs:
                code = ImitationExclusion.DUPLICATE if one.source_id in seen else ImitationExclusion.ALREADY_USED
                read.leave(code, one.name)
                continue
            seen.add(one.source_id)
            made = await self._run(demonstrate_conversation, one, basis, template)
            if made.task in held_out.inputs:
                read.overlap.append(one.name)
            read.add(made)
        return read

    def _load_template(self) -> ChatTemplate | None:
        if self._template is None and self._why_no_template is None:
            try:
                self._template = ChatTemplate(self._base, self._template_file)
            except TrainerError as e:
                self._why_no_template = e
        return self._template


def parse_conditions(where: Sequence[str]) -> list[Condition]:
    """Read conditions on demonstrations. Raises `ConditionInvalid`."""
    return [parse_condition(text, of_groups=True) for text in where]


def imitation_metrics(read: ReadDemonstrations) -> dict[str, float]:
    """The metrics of a step that imitates, by their names in a report."""
    return {"demonstrations": float(len(read.found)), "rendered_tokens": float(read.rendered_tokens)}
