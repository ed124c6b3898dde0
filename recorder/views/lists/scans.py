"""Query plans of filtered lists: the index to scan, and the checks of each candidate.

Owns: that choice, and the conditions. Refuses: scanning (`recorder.views.lists.paging`).

Without statistics SQLite uses any index that a condition names, and then sorts all rows it finds. So a condition that
is only a check is written without its index (`sql.without_index`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ScalarSelect,
    Select,
    String,
    and_,
    cast,
    exists,
    func,
    or_,
    select,
    text,
    true,
    union_all,
)

from recorder.curation.datasets import trajectories_in
from recorder.ids import first_id_at
from recorder.queue.judging.scores import REWARD
from recorder.registry.versions import parse_name
from recorder.search.matches import find_trajectories
from recorder.states import Origin, Purpose, StepState
from recorder.store import ledger as ledger_rows
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.ledger import TRAINED
from recorder.store.schema import (
    aliases,
    calls,
    campaigns,
    groups,
    keys,
    score_parts,
    step_trajectories,
    steps,
    tool_calls,
    trajectories,
    trajectory_facets,
    trajectory_totals,
    versions,
)
from recorder.store.statement import equals_literal
from recorder.totals.call_facts import Facet
from recorder.views.lists import columns
from recorder.views.lists.filters import ANY, USUAL_ORIGINS, GroupFilter, TrajectoryFilter
from recorder.views.lists.paging import MOST_HIDDEN, Candidates, FullScan, IndexedScan, Order, Place, Range

FAILED_TOOL_CALLS: Final = text("tool_calls.outcome IN ('failed', 'errored')")  # as in their index
# A trajectory gets its id at its first request and begins with its first call, so the two times differ.
_SLACK_S: Final = 3600.0
_MOST_SAYING: Final = 1000  # matches of a search that are checked against other conditions
_MOST_GROUPS: Final = 2000  # groups that are checked: the rewards of eight trajectories in each
# Fewer rows are looked up together. With more, each candidate is checked, and many match.
_FEW: Final = 2000
t = trajectories.c
g = groups.c
RUNS: Final = Order(t.id)
GROUPS: Final = Order(g.id, g.opened_at)  # the id of an implicit group derives from its task, not from the time


@dataclass(frozen=True, slots=True)
class _FilterCondition:
    """One condition: as a check, by an index (if there is one), and the rows that meet it (if they may be few)."""

    check: ColumnElement[bool]
    by: Candidates | None = None
    rare: Select[tuple[str]] | CompoundSelect[tuple[str]] | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The source of candidates, and the checks of each."""

    candidates: Candidates
    checks: Sequence[ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class _SearchScan:
    """Trajectories that match a search, from the search index."""

    project_id: str
    said: str
    first: Place | None = None
    end: Place | None = None

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Return the next matches."""
        tops = [one for one in (before, *(self.end or ())) if one is not None]
        most = enough or _MOST_SAYING
        ids = await find_trajectories(
            Project(store, self.project_id), self.said, before=min(tops, default=None), limit=most
        )
        wanted = [one for one in ids if self.first is None or (one,) >= self.first]
        there_are_more = len(ids) == most and len(wanted) == most
        return Range([t.id.in_(wanted)], *((ids[-1], most) if there_are_more else ()))


async def scan_trajectories(project: Project, wanted: TrajectoryFilter) -> Scan:
    """Plan the scan of trajectories: by the rarest condition that has an index."""
    all_of_them = IndexedScan(RUNS, [t.project_id == project.id], *_ids(wanted))
    return await _walk(project.store, all_of_them, _of_runs(project.id, wanted))


async def scan_groups(project: Project, wanted: GroupFilter) -> Scan:
    """Plan the scan of groups."""
    all_of_them = IndexedScan(GROUPS, [g.project_id == project.id], *_opened(wanted), _MOST_GROUPS)
    return await _walk(project.store, all_of_them, _of_groups(project.id, wanted))


async def count_hidden_trajectories(project: Project, wanted: TrajectoryFilter) -> int:
    """Count the trajectories of origin shadow that match the filter but for their origin, of the newest such."""
    others = replace(wanted, origins=())
    checks = [one.check for one in _of_runs(project.id, others)]
    if wanted.search is not None:
        checks.append(t.id.in_(await find_trajectories(project, wanted.search, before=None, limit=_MOST_SAYING)))
    hidden = select(t.id).where(*_hidden(project.id)).order_by(t.id.desc()).limit(MOST_HIDDEN)
    return await _count(project.store, select(t.id).where(t.id.in_(hidden), *checks) if checks else hidden)


async def count_hidden_groups(project: Project, wanted: GroupFilter) -> int:
    """Count the groups of shadow answers and pairs of gates that match the filter but for their origin, as above."""
    checks = [one.check for one in _of_groups(project.id, replace(wanted, origins=()))]
    checks += [] if wanted.since is None else [g.opened_at >= wanted.since]
    checks += [] if wanted.until is None else [g.opened_at < wanted.until]
    members = select(t.group_id).where(*_hidden(project.id)).order_by(t.id.desc()).limit(MOST_HIDDEN).subquery()
    return await _count(project.store, select(g.id).where(g.id.in_(select(members.c.group_id)), *checks))


def _hidden(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """The trajectories that `USUAL_ORIGINS` hide, by the index of only those."""
    return t.project_id == project_id, equals_literal(t.origin, Origin.SHADOW)


async def _count(store: Store, query: Select[tuple[str]]) -> int:
    async with store.read() as conn:
        return int((await conn.execute(select(func.count()).select_from(query.subquery()))).scalar_one())


async def _walk(store: Store, all_of_it: IndexedScan, asked: Sequence[_FilterCondition]) -> Scan:
    by: tuple[_FilterCondition | None, Candidates] = (None, all_of_it)
    for one in asked:
        found = one.by if one.rare is None else await _few(store, all_of_it.order, one.rare)
        if found is not None:
            by = (one, found)
            break
    narrowing, candidates = by
    return Scan(candidates, [one.check for one in asked if one is not narrowing])


async def _few(store: Store, order: Order, rare: Select[tuple[str]] | CompoundSelect[tuple[str]]) -> FullScan | None:
    async with store.read() as conn:
        found = list((await conn.execute(rare.limit(_FEW))).scalars())
    return FullScan(order, [order.id.in_(set(found))]) if len(found) < _FEW else None


def _ids(wanted: TrajectoryFilter) -> tuple[Place | None, Place | None]:
    """Return the range of ids of trajectories that began within the filter's times."""
    first = None if wanted.since is None else (first_id_at("traj", wanted.since - _SLACK_S),)
    return first, None if wanted.until is None else (first_id_at("traj", wanted.until + _SLACK_S),)


def _opened(wanted: GroupFilter) -> tuple[Place | None, Place | None]:
    """Return the range of exactly the groups that were opened within the filter's times."""
    return None if wanted.since is None else (wanted.since, ""), None if wanted.until is None else (wanted.until, "")


def _of_runs(project_id: str, wanted: TrajectoryFilter) -> list[_FilterCondition]:
    """Return all conditions on a trajectory, the likely rarest first."""
    ours, ids = t.project_id == project_id, _ids(wanted)
    mine = sql.without_index(t.project_id) == project_id
    found: list[_FilterCondition] = []
    if wanted.search is not None:
        found.append(_FilterCondition(true(), _SearchScan(project_id, wanted.search, *ids)))
    if wanted.reason is not None:
        rare = columns.excluded_trajectories(project_id, wanted.reason)
        found.append(_FilterCondition(and_(mine, columns.filter_by_reason(wanted.reason)), rare=rare))
    for facet, value in _facets(wanted):
        found.append(_facet(project_id, facet, value))
    if wanted.trained:
        trained = ledger_rows.objects_with(project_id, columns.TRAJECTORY, TRAINED)
        found.append(
            _FilterCondition(and_(mine, ledger_rows.has_code(columns.TRAJECTORY, t.id, TRAINED)), rare=trained)
        )
    if wanted.trained_by is not None:
        used = _trained_by(project_id, wanted.trained_by)
        found.append(_FilterCondition(and_(mine, t.id.in_(used)), rare=used))
    if wanted.group is not None:
        of_group = _groups_named(project_id, wanted.group)
        found.append(
            _FilterCondition(
                sql.without_index(t.group_id).in_(of_group), FullScan(RUNS, [mine, t.group_id.in_(of_group)])
            )
        )
    if wanted.dataset is not None:
        of_dataset = trajectories_in(project_id, wanted.dataset)
        found.append(_FilterCondition(sql.without_index(t.id).in_(of_dataset), rare=of_dataset))
    if wanted.session is not None:
        by_session = IndexedScan(RUNS, [ours, t.session == wanted.session], *ids)
        found.append(_FilterCondition(sql.without_index(t.session) == wanted.session, by_session))
    if wanted.tool_error is not None:
        failed = _failed_tool_calls(project_id)
        has = failed.where(tool_calls.c.trajectory_id == t.id).exists()
        found.append(_FilterCondition(has, rare=failed.distinct()) if wanted.tool_error else _FilterCondition(~has))
    if wanted.version is not None:
        version = _version(project_id, wanted.version)
        by_version = IndexedScan(RUNS, [mine, t.version_id == version], *ids)
        found.append(_FilterCondition(sql.without_index(t.version_id) == version, by_version))
    if wanted.alias is not None:
        alias = _alias(project_id, wanted.alias)
        by_alias = IndexedScan(RUNS, [ours, t.alias_id == alias], *ids)
        found.append(_FilterCondition(sql.without_index(t.alias_id) == alias, by_alias))
    if len(wanted.states) == 1:
        [state] = wanted.states
        found.append(
            _FilterCondition(sql.without_index(t.state) == state, IndexedScan(RUNS, [ours, t.state == state], *ids))
        )
    return [*found, *map(_FilterCondition, _checks_of_runs(project_id, wanted))]


def _facets(wanted: TrajectoryFilter) -> Iterator[tuple[Facet, str]]:
    named = (
        (Facet.ERROR, wanted.error),
        (Facet.TOOL, wanted.tool),
        (Facet.FINISH_REASON, wanted.finish_reason),
        (Facet.CLIENT, wanted.client),
    )
    yield from ((facet, value) for facet, value in named if value is not None)


def _facet(project_id: str, facet: Facet, value: str) -> _FilterCondition:
    """The condition that a call of a trajectory has a facet: by the index of the facet's values."""
    f = trajectory_facets.c
    has = (f.project_id == project_id, f.facet == facet.value, *([] if value == ANY else [f.value == value]))
    rare = select(f.trajectory_id).where(*has)
    if value == ANY:
        rare = rare.distinct()
    return _FilterCondition(exists().where(*has, f.trajectory_id == t.id), rare=rare)


def _checks_of_runs(project_id: str, wanted: TrajectoryFilter) -> list[ColumnElement[bool]]:
    """Conditions without an index."""
    found: list[ColumnElement[bool]] = []
    if wanted.trained is False:
        found.append(~ledger_rows.has_code(columns.TRAJECTORY, t.id, TRAINED))
    if wanted.key is not None:
        found.append(t.made_by.in_(_families(project_id, wanted.key)))
    if wanted.tokens_from is not None or wanted.tokens_to is not None:
        found.append(_between(token_count(), wanted.tokens_from, wanted.tokens_to))
    if wanted.duration_from is not None or wanted.duration_to is not None:
        found.append(_between(t.last_call_at - t.started_at, wanted.duration_from, wanted.duration_to))
    if wanted.active_since is not None:
        found.append(t.last_call_at >= wanted.active_since)
    if len(wanted.states) > 1:
        found.append(sql.without_index(t.state).in_(wanted.states))
    if wanted.purpose is not None:
        found.append(t.purpose == wanted.purpose)
    if wanted.origins and len(wanted.origins) < len(Origin):
        found.append(sql.without_index(t.origin).in_(wanted.origins))
    if wanted.origins == USUAL_ORIGINS:
        of_gate = exists().where(g.id == t.group_id, g.campaign_id.in_(_gates(project_id)))
        found.append(or_(t.purpose == Purpose.TRAIN, ~of_gate))
    if wanted.agents:
        found.append(_of_agents())
    if wanted.source is not None:
        found.append(exists().where(calls.c.trajectory_id == t.id, calls.c.attribution_source == wanted.source))
    for name, value in wanted.tags:
        tag = sql.json_member(t.tags, name)
        found.append(tag.is_not(None) if value is None else cast(tag, String) == value)
    if wanted.reward_from is not None or wanted.reward_to is not None:
        found.append(_between(_reward(), wanted.reward_from, wanted.reward_to))
    return [*found, *_begun(wanted)]


def _of_groups(project_id: str, wanted: GroupFilter) -> list[_FilterCondition]:
    """Return all conditions on a group, the likely rarest first."""
    ours, times = g.project_id == project_id, _opened(wanted)
    found: list[_FilterCondition] = []
    if wanted.reason is not None:
        by_reason = IndexedScan(GROUPS, [ours, g.reason == wanted.reason], *times, _MOST_GROUPS)
        found.append(_FilterCondition(sql.without_index(g.reason) == wanted.reason, by_reason))
    if len(wanted.states) == 1:
        [state] = wanted.states
        found.append(
            _FilterCondition(
                sql.without_index(g.state) == state, IndexedScan(GROUPS, [ours, g.state == state], *times, _MOST_GROUPS)
            )
        )
    return [*found, *map(_FilterCondition, _checks_of_groups(project_id, wanted))]


def _checks_of_groups(project_id: str, wanted: GroupFilter) -> list[ColumnElement[bool]]:
    """Conditions without an index."""
    found: list[ColumnElement[bool]] = []
    if len(wanted.states) > 1:
        found.append(sql.without_index(g.state).in_(wanted.states))
    if wanted.alias is not None:
        found.append(g.alias_id == _alias(project_id, wanted.alias))
    if wanted.version is not None:
        found.append(g.version_id == _version(project_id, wanted.version))
    if wanted.campaign is not None:
        named = select(campaigns.c.id).where(
            campaigns.c.project_id == project_id,
            or_(campaigns.c.id == wanted.campaign, campaigns.c.name == wanted.campaign),
        )
        found.append(g.campaign_id.in_(named))
    if wanted.origins == USUAL_ORIGINS:  # a group whose members are deleted is shown
        found.append(~_has_member(t.origin == Origin.SHADOW))
        if wanted.campaign is None:
            found.append(or_(g.campaign_id.is_(None), g.campaign_id.not_in(_gates(project_id))))
    elif wanted.origins and len(wanted.origins) < len(Origin):
        found.append(_has_member(t.origin.in_(wanted.origins)))
    if wanted.spread_from is not None or wanted.spread_to is not None:
        found.append(_between(_spread(), wanted.spread_from, wanted.spread_to))
    return found


def _has_member(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(t.group_id == g.id, condition)


def _gates(project_id: str) -> Select[tuple[str]]:
    """The query for the campaigns of gates, whose attempts at scenarios compare versions, as pairs of a gate do."""
    return select(campaigns.c.id).where(campaigns.c.project_id == project_id, campaigns.c.version_id.is_not(None))


def _begun(wanted: TrajectoryFilter) -> list[ColumnElement[bool]]:
    since = [] if wanted.since is None else [t.started_at >= wanted.since]
    return since + ([] if wanted.until is None else [t.started_at < wanted.until])


def _of_agents() -> ColumnElement[bool]:
    """Whether an agent made a trajectory: shadow answers, pairs of a gate and a campaign's measurements are Hone's."""
    origin = sql.without_index(t.origin)
    return and_(origin != Origin.SHADOW, or_(origin != Origin.CAMPAIGN, t.purpose == Purpose.TRAIN))


def _between(value: ColumnElement[float], low: float | None, high: float | None) -> ColumnElement[bool]:
    return and_(*([] if low is None else [value >= low]), *([] if high is None else [value <= high]))


def _alias(project_id: str, name: str) -> ScalarSelect[str]:
    return select(aliases.c.id).where(aliases.c.project_id == project_id, aliases.c.name == name).scalar_subquery()


def _version(project_id: str, name: str) -> ScalarSelect[str]:
    alias, number = parse_name(name)
    access = select(versions.c.id).join(aliases, aliases.c.id == versions.c.alias_id)
    access = access.where(aliases.c.project_id == project_id, aliases.c.name == alias, versions.c.number == number)
    return access.scalar_subquery()


def _trained_by(project_id: str, name: str) -> Select[tuple[str]]:
    """The query for the trajectories that the step of a version trained on."""
    made = (steps.c.version_id == _version(project_id, name), steps.c.state == StepState.DONE)
    used = select(step_trajectories.c.trajectory_id).join(steps, steps.c.id == step_trajectories.c.step_id)
    return used.where(*made)


def _families(project_id: str, name: str) -> Select[tuple[str]]:
    """The query for the families of the keys with a name or an id."""
    named = or_(keys.c.name == name, keys.c.id == name, keys.c.family == name)
    return select(keys.c.family).where(keys.c.project_id == project_id, keys.c.family != "", named)


def token_count() -> ScalarSelect[float]:
    """A column: the prompt and sampled tokens of a query's trajectory; NULL until its calls are counted."""
    totals = trajectory_totals.c
    number: ColumnElement[float] = totals.tokens_in + totals.tokens_out
    return select(number).where(totals.trajectory_id == t.id).scalar_subquery()


def _groups_named(project_id: str, name: str) -> CompoundSelect[tuple[str]]:
    """Return one query per index: with an `or`, SQLite would scan all groups."""
    of_project = select(g.id).where(g.project_id == project_id)
    by_id = select(g.id).where(g.id == name, sql.without_index(g.project_id) == project_id)
    return union_all(of_project.where(g.external_id == name), by_id)


def _failed_tool_calls(project_id: str) -> Select[tuple[str]]:
    """The query for the trajectories of failed tool calls, by their partial index."""
    failed = select(tool_calls.c.trajectory_id).where(tool_calls.c.project_id == project_id)
    return failed.where(FAILED_TOOL_CALLS, tool_calls.c.trajectory_id.is_not(None))


def _reward() -> ScalarSelect[float]:
    part = score_parts.c
    of_run = select(part.value).join(groups, g.current_score_id == part.score_id)
    return of_run.where(g.id == t.group_id, part.trajectory_id == t.id, part.part == REWARD).scalar_subquery()


def _spread() -> ScalarSelect[float]:
    part = score_parts.c
    of_group = select(func.max(part.value) - func.min(part.value))
    return of_group.where(part.score_id == g.current_score_id, part.part == REWARD).scalar_subquery()
