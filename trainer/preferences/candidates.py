"""Recorded pairs of an alias: people's choices (`hone review`, pages, feedback `preference`), and rewards of groups.

Owns: the queries, and which pairs are used up or of another model. Refuses: which two trajectories are a pair
(`trainer.preferences.pairs`), conversations and rows (`trainer.step.fits.pair_reader`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Select, select

from recorder.queue.feedback import PREFERENCE, TIE, parse_choice
from recorder.queue.groups.disputes import PairChoice
from recorder.queue.judging.scores import REWARD
from recorder.queue.training import uses
from recorder.registry.aliases import AliasView
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import feedback, groups, score_parts, trajectories
from trainer.objectives.imitate_rows import ImitationExclusion
from trainer.objectives.prefer import NAME
from trainer.preferences.pairs import PairCandidate, PairExclusion, choose_pairs

MOST: Final = 2000  # of the newest groups that are looked at, and of pairs
_PAGE: Final = 500  # ids per SELECT


@dataclass(slots=True)
class PairCandidates:
    """The pairs of an alias, and others with the reason."""

    found: list[PairCandidate] = field(default_factory=list)
    excluded: list[tuple[PairCandidate, str]] = field(default_factory=list)


async def load_candidates(
    project: Project, alias: AliasView, *, margin: float, epochs: int, parent_id: str
) -> PairCandidates:
    """Return the pairs of an alias that no version in the ancestry of `parent_id` has used up, at most `MOST`.

    `margin`: the smallest difference between the best and the worst reward of a group.
    """
    choices = await _list_choices(project)
    owners = await _alias_ids(project.store, {id_ for one in choices for id_ in one.pair})
    candidates = PairCandidates()
    own: list[PairChoice] = []
    for one in choices:
        # of other aliases, and of trajectories that were deleted
        if one.pair <= owners.keys() and alias.id in {owners[id_] for id_ in one.pair}:
            own.append(one)
    chosen = choose_pairs(own, await _list_rewards(project.store, alias.id), margin)
    used = await uses.count_uses(project.store, NAME, [one.source_id for one in chosen], parent_id)
    for pair in chosen:
        if pair.source == "preference" and owners[pair.rejected] != alias.id:
            candidates.excluded.append((pair, PairExclusion.OTHER_MODEL))
        elif used.get(pair.source_id, 0) >= epochs:
            candidates.excluded.append((pair, ImitationExclusion.ALREADY_USED))
        elif len(candidates.found) < MOST:
            candidates.found.append(pair)
    return candidates


async def _list_choices(project: Project) -> list[PairChoice]:
    """Every choice of the project, the oldest first."""
    f = feedback.c
    query = (
        select(f.trajectory_id, f.name, f.value, f.tags)
        .where(f.project_id == project.id, f.name.in_((PREFERENCE, TIE)))
        .order_by(f.created_at, f.id)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    parsed = (parse_choice(row.trajectory_id, row.name, row.value, row.tags) for row in rows)
    return [one for one in parsed if one is not None]


async def _alias_ids(store: Store, ids: Collection[str]) -> dict[str, str | None]:
    """The alias of each trajectory that is there; another provider's model has none."""
    t, ordered, found = trajectories.c, sorted(ids), dict[str, str | None]()
    for at in range(0, len(ordered), _PAGE):
        query = select(t.id, t.alias_id).where(t.id.in_(ordered[at : at + _PAGE]))
        async with store.read() as conn:
            found |= {row.id: row.alias_id for row in await conn.execute(query)}
    return found


async def _list_rewards(store: Store, alias_id: str) -> Sequence[Mapping[str, float]]:
    """The rewards of each scored group, the newest group first; of trajectories that may be trained on."""
    async with store.read() as conn:
        newest = list((await conn.execute(_scored_groups(alias_id))).scalars())
    found: dict[str, dict[str, float]] = {id_: {} for id_ in newest}
    for at in range(0, len(newest), _PAGE):
        async with store.read() as conn:
            for row in await conn.execute(_rewards(newest[at : at + _PAGE])):
                found[row.group_id][row.id] = row.value
    return list(found.values())


def _scored_groups(alias_id: str) -> Select[Any]:
    g = groups.c
    scored = select(g.id).where(g.alias_id == alias_id, g.current_score_id.is_not(None))
    return scored.order_by(g.opened_at.desc(), g.id.desc()).limit(MOST)


def _rewards(group_ids: Sequence[str]) -> Select[Any]:
    t, p = trajectories.c, score_parts.c
    of_groups = groups.join(score_parts, p.score_id == groups.c.current_score_id)
    return (
        select(groups.c.id.label("group_id"), t.id, p.value)
        .select_from(of_groups.join(trajectories, t.id == p.trajectory_id))
        .where(groups.c.id.in_(group_ids), t.group_id == groups.c.id)
        .where(p.part == REWARD, p.value.is_not(None))
        .where(t.state == TrajectoryState.COMPLETED, t.selection.is_(None))
        .where(t.purpose == Purpose.TRAIN, t.origin != Origin.SHADOW)
    )
