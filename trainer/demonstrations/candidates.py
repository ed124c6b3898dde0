"""Recorded trajectories to imitate: those that conditions select, that are not measured, and that are not used up.

Owns: the queries, newest first, and why a selected trajectory is not a candidate. Refuses: conditions
(`trainer.tasks.conditions`), which of its answers are imitated (`trainer.objectives.imitate_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import select

from recorder.queue.feedback import DEMONSTRATION
from recorder.queue.training import uses
from recorder.registry.aliases import AliasView
from recorder.states import Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns, feedback, scenarios
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories, trajectory_lines
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import list_members, load_trajectories
from trainer.objectives.corrections import corrected_at
from trainer.objectives.imitate_rows import ImitationExclusion, why_no_candidate
from trainer.tasks.conditions import BEST, Condition, condition_facts, is_best, line_facts
from trainer.tasks.selection import comparison_form

PAGE: Final = 50  # trajectories read at a time
MOST: Final = 2000  # of the newest trajectories that are looked at


@dataclass(frozen=True, slots=True)
class HeldOutScenarios:
    """The scenarios of an alias's validation and test parts, gates included: their ids, and their compared inputs."""

    ids: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()

    def has_input(self, text: str) -> bool:
        """Whether a task's text is the input of one of them."""
        return comparison_form(text) in self.inputs


@dataclass(slots=True)
class Candidates:
    """The trajectories to imitate, newest first, with their tokens; and the number of others by the reason."""

    found: list[TrajectoryView] = field(default_factory=list)
    looked_at: int = 0
    left: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """Which trajectories an objective imitates, and how many at most. `parent_id`: the version to train from."""

    conditions: Sequence[Condition]
    objective: str
    epochs: int
    parent_id: str
    limit: int = MOST


async def load_candidates(
    project: Project, alias: AliasView, request: CandidateRequest, held_out: HeldOutScenarios
) -> Candidates:
    """Return the candidates of an alias, or of another model that a condition names."""
    candidates, facts = Candidates(), ConditionFacts(project.store)
    async for lines in _pages(project, _alias_filter(alias, request.conditions)):
        candidates.looked_at += len(lines)
        known = await _known_corrections(project.store, request.conditions, [one.id for one in lines])
        wanted = {one.id: one for one in lines if may_meet(request.conditions, one, known.get(one.id))}
        views = await load_trajectories(project.store, list(wanted), with_tokens=True)
        since = {view.id: at for view in views if (at := corrected_at(view)) is not None}
        used = await uses.count_uses(project.store, request.objective, list(wanted), request.parent_id, since)
        for view in views:
            if not await facts.meet(request.conditions, wanted[view.id], view):
                continue
            if (code := _why_not(view, used, request.epochs, held_out)) is not None:
                candidates.left[code] += 1
                continue
            candidates.found.append(view)
            if len(candidates.found) >= request.limit:
                return candidates
    return candidates


async def load_held_out(store: Store, alias_id: str) -> HeldOutScenarios:
    """Return the scenarios that measure versions of an alias."""
    query = (
        select(scenarios.c.external_id, scenarios.c.input)
        .join(campaigns, campaigns.c.id == scenarios.c.campaign_id)
        .where(campaigns.c.alias_id == alias_id, scenarios.c.split != "train")
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    return HeldOutScenarios(frozenset(row[0] for row in rows), frozenset(comparison_form(row[1]) for row in rows))


def why_not_trained_on(view: TrajectoryView, held_out: HeldOutScenarios) -> str | None:
    """Return why a trajectory is no demonstration and no side of a pair, whatever its answers are."""
    if (code := why_no_candidate(view)) is not None:
        return code
    measured = view.scenario is not None and view.scenario.id in held_out.ids
    return ImitationExclusion.HELD_OUT_SCENARIO if measured else None


def _why_not(view: TrajectoryView, used: Mapping[str, int], epochs: int, held_out: HeldOutScenarios) -> str | None:
    if (code := why_not_trained_on(view, held_out)) is not None:
        return code
    return ImitationExclusion.ALREADY_USED if used.get(view.id, 0) >= epochs else None


def _alias_filter(alias: AliasView, conditions: Collection[Condition]) -> TrajectoryFilter:
    """Another provider's model has no alias."""
    others = any(one.field == "model" and one.how == "=" and one.value != alias.name for one in conditions)
    return TrajectoryFilter(
        states=(TrajectoryState.COMPLETED,), purpose=Purpose.TRAIN, alias=None if others else alias.name
    )


async def _pages(project: Project, wanted: TrajectoryFilter) -> AsyncIterator[Sequence[TrajectoryLine]]:
    before: str | None = None
    for _ in range(0, MOST, PAGE):
        page = await list_trajectories(project, wanted, before=before, limit=PAGE)
        yield page.lines
        if page.next is None:
            return
        before = page.next


async def _known_corrections(
    store: Store, conditions: Collection[Condition], ids: Sequence[str]
) -> Mapping[str, Mapping[str, str]]:
    """Return by trajectory whether it has a correction, if a condition asks for that: they are few, and reading each
    trajectory of the traffic to find them takes longer than a step.
    """
    if all(one.field != DEMONSTRATION for one in conditions):
        return {}
    query = select(feedback.c.trajectory_id).where(feedback.c.trajectory_id.in_(ids), feedback.c.name == DEMONSTRATION)
    async with store.read() as conn:
        corrected = set((await conn.execute(query)).scalars())
    return {id_: {DEMONSTRATION: "yes" if id_ in corrected else "no"} for id_ in ids}


def may_meet(conditions: Collection[Condition], line: TrajectoryLine, known: Mapping[str, str] | None = None) -> bool:
    """Whether a trajectory meets the conditions, as far as its line says. `known`: other facts about it."""
    facts = {**line_facts(line), **(known or {})}
    return all(one.holds(facts) for one in conditions if one.field in facts)


class ConditionFacts:
    """Whether trajectories meet conditions. The rewards of a group are read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, list[float]] = {}

    async def meet(self, conditions: Collection[Condition], line: TrajectoryLine, view: TrajectoryView) -> bool:
        """Whether a trajectory meets all conditions."""
        facts: dict[str, Any] = condition_facts(line, view)
        if any(one.field == BEST for one in conditions):
            facts[BEST] = "yes" if is_best(line.reward, await self._rewards(line.group_id)) else "no"
        return all(one.holds(facts) for one in conditions)

    async def _rewards(self, group_id: str | None) -> list[float]:
        if group_id is None:
            return []
        if group_id not in self._known:
            lines = await trajectory_lines(self._store, await list_members(self._store, group_id))
            self._known[group_id] = [one.reward for one in lines if one.reward is not None]
        return self._known[group_id]
