"""Load trajectories, groups, single calls and an alias's first turns, on request with their exact tokens.

Owns: the queries behind `recorder.views.trajectories.shapes`: a few for a whole group, each short and of bounded size;
and which recorded calls are first turns. Refuses: writing, deciding what is trained on, and replaying first turns
(`proxy.gate.sanity`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.beside_loop import run_beside_loop
from recorder.errors import NotFound
from recorder.messages import media
from recorder.queue.campaigns import ALIAS, REWARD_RECIPE
from recorder.states import CallKind, CallState, GroupState, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import (
    aliases,
    blobs,
    calls,
    choices,
    feedback,
    groups,
    nodes,
    scenarios,
    tool_calls,
    trajectories,
)
from recorder.views.trajectories.assembly import (
    Row,
    ViewRows,
    call_view,
    restore_message,
    tool_call_view,
    trajectory_view,
)
from recorder.views.trajectories.shapes import CallView, FeedbackView, GroupView, ScenarioView, TrajectoryView

PAGE = 200  # keys per SELECT: a long read would prevent SQLite from reusing its WAL
_MANY: Final = 500  # messages: work on more takes longer than 5 ms
_TOKEN_COLUMNS = {"prompt_delta", "prompt_hashes", "token_ids", "logprobs", "hashes"}
_BASELINE = select(aliases.c.baseline).where(aliases.c.id == groups.c.alias_id).scalar_subquery().label("baseline")


async def load_trajectory(store: Store, trajectory_id: str, *, with_tokens: bool = False) -> TrajectoryView:
    """Load one trajectory by its internal id. Raises NotFound."""
    found = await load_trajectories(store, [trajectory_id], with_tokens=with_tokens)
    if not found:
        raise NotFound(f"no trajectory {trajectory_id!r}")
    return found[0]


async def load_trajectories(store: Store, ids: Sequence[str], *, with_tokens: bool = False) -> list[TrajectoryView]:
    """Load trajectories in the order of their ids; unknown ids are omitted."""
    rows = await _rows(store, ids, lambda keys: select(trajectories).where(trajectories.c.id.in_(keys)))
    material = await _material(store, rows, with_tokens, {row.group_id for row in rows if row.group_id is not None})
    by_id = {row.id: row for row in rows}
    return [trajectory_view(by_id[id_], material) for id_ in ids if id_ in by_id]


async def load_call(store: Store, call_id: str) -> CallView | None:
    """Load one call without its tokens. None: it does not exist."""
    material = ViewRows()
    await _add_calls(store, material, calls.c.id, [call_id])
    row = material.calls.get(call_id)
    if row is None:
        return None
    await _add_choices(store, material)
    await _add_blobs(store, material, _blobs_of([row]))
    await _add_nodes(store, material, [row])
    return await run_beside_loop(lambda: call_view(row, material), large=len(material.nodes) > _MANY)


async def load_group(store: Store, group_id: str, *, with_tokens: bool = False) -> GroupView:
    """Load a group with all its members. Raises NotFound."""
    return (await load_groups(store, [group_id], with_tokens=with_tokens))[0]


async def load_groups(store: Store, group_ids: Sequence[str], *, with_tokens: bool = False) -> list[GroupView]:
    """Load groups with all members, in the order of the ids, by a fixed number of SELECTs per page. Raises NotFound."""
    columns = (groups, _BASELINE, ALIAS, REWARD_RECIPE)
    of_groups = await _rows(store, group_ids, lambda keys: select(*columns).where(groups.c.id.in_(keys)))
    found = {row.id: row for row in of_groups}
    for group_id in group_ids:
        if group_id not in found:
            raise NotFound(f"no group {group_id!r}")
    rows = await _rows(store, group_ids, lambda keys: select(trajectories).where(trajectories.c.group_id.in_(keys)))
    rows.sort(key=lambda row: (row.started_at, row.id))
    material = await _material(store, rows, with_tokens, {id_ for id_, g in found.items() if g.scenario_id is not None})
    members: dict[str, list[TrajectoryView]] = {}
    for row in rows:
        members.setdefault(row.group_id, []).append(trajectory_view(row, material))
    return [
        _group_view(found[id_], members.get(id_, []), material.scenarios.get(id_)) for id_ in dict.fromkeys(group_ids)
    ]


def _group_view(row: Row, members: Sequence[TrajectoryView], scenario: ScenarioView | None) -> GroupView:
    return sql.as_view(GroupView, row, state=GroupState(row.state), scenario=scenario, members=members)


async def find_trajectory(project: Project, id_or_external: str, group: str | None = None) -> str:
    """Return the internal id of a trajectory, given that id or its external one (the newest continuation counts).

    `group`: the group part of its address ("": none); None: any group, the newest trajectory counts. Raises NotFound.
    """
    here = select(trajectories.c.id).where(trajectories.c.project_id == project.id)
    named = here.where(trajectories.c.external_id == id_or_external)
    if group is not None:
        named = named.where(trajectories.c.address_group == group)
    newest = named.order_by(trajectories.c.started_at.desc(), trajectories.c.sequence.desc()).limit(1)
    async with project.store.read() as conn:
        id_ = (await conn.execute(here.where(trajectories.c.id == id_or_external))).scalar_one_or_none()
        if id_ is None:
            id_ = (await conn.execute(newest)).scalar_one_or_none()
    if id_ is None:
        where = f" in group {group!r}" if group is not None else ""
        raise NotFound(f"no trajectory {id_or_external!r}{where} in project {project.id!r}")
    return str(id_)


async def find_owners(store: Store, trajectory_ids: Collection[str]) -> set[str]:
    """Return the key families that own these trajectories; "": one was created without a key."""
    query = select(trajectories.c.made_by).where(trajectories.c.id.in_(list(trajectory_ids))).distinct()
    async with store.read() as conn:
        return set((await conn.execute(query)).scalars())


async def trajectory_states(store: Store, trajectory_ids: Collection[str]) -> dict[str, TrajectoryState]:
    """Return the state of each of some trajectories, at most 500, by id; those that do not exist are absent."""
    query = select(trajectories.c.id, trajectories.c.state).where(trajectories.c.id.in_(list(trajectory_ids)))
    async with store.read() as conn:
        return {id_: TrajectoryState(state) for id_, state in await conn.execute(query)}


async def list_members(store: Store, group_id: str) -> list[str]:
    """Return the ids of a group's trajectories."""
    query = select(trajectories.c.id).where(trajectories.c.group_id == group_id)
    async with store.read() as conn:
        return list((await conn.execute(query)).scalars())


async def trajectory_of_call(project: Project, call_id: str) -> str | None:
    """Return the internal id of a call's trajectory, or None."""
    query = select(calls.c.trajectory_id).where(calls.c.id == call_id, calls.c.project_id == project.id)
    async with project.store.read() as conn:
        return (await conn.execute(query)).scalar_one_or_none()


# --- queries


async def _rows(store: Store, keys: Iterable[Any], query: Callable[[Sequence[Any]], Select[Any]]) -> list[Row]:
    """Return the rows of a query over many keys, read in pages of keys, each in its own transaction."""
    rest, found = iter(keys), []
    while page := list(islice(rest, PAGE)):
        async with store.read() as conn:
            found.extend((await conn.execute(query(page))).all())
    return found


async def _material(store: Store, rows: Sequence[Row], with_tokens: bool, group_ids: Collection[str]) -> ViewRows:
    """Return all rows that the views of some trajectories need; scenarios only of `group_ids`."""
    material = ViewRows(with_tokens=with_tokens)
    ids = [row.id for row in rows]
    await _add_calls(store, material, calls.c.trajectory_id, ids)
    leaves = {row.leaf_call_id for row in rows if row.leaf_call_id is not None}
    await _add_calls(store, material, calls.c.id, leaves - material.calls.keys())
    shown = list(material.calls.values())
    if with_tokens:
        await _add_ancestors(store, material)
    await _add_choices(store, material)
    await _add_blobs(store, material, _blobs_of(shown))
    await _add_nodes(store, material, shown)
    said = await _rows(store, ids, lambda keys: select(feedback).where(feedback.c.trajectory_id.in_(keys)))
    for row in sorted(said, key=lambda r: (r.created_at, r.id)):
        material.feedback.setdefault(row.trajectory_id, []).append(sql.as_view(FeedbackView, row))
    by_tools = await _rows(store, ids, lambda keys: select(tool_calls).where(tool_calls.c.trajectory_id.in_(keys)))
    for row in sorted(by_tools, key=lambda r: (r.started_at, r.id)):
        material.tool_calls.setdefault(row.trajectory_id, []).append(tool_call_view(row))
    material.scenarios = await _scenarios(store, group_ids)
    return material


def _columns(table: Any, with_tokens: bool) -> list[Any]:
    return [c for c in table.c if with_tokens or c.name not in _TOKEN_COLUMNS]


async def _add_calls(store: Store, material: ViewRows, column: Any, keys: Collection[Any]) -> None:
    wanted = _columns(calls, material.with_tokens)
    for row in await _rows(store, keys, lambda page: select(*wanted).where(column.in_(page))):
        material.calls[row.id] = row
        material.homes.setdefault(row.trajectory_id, []).append(row)


async def _add_ancestors(store: Store, material: ViewRows) -> None:
    """Add the calls that others share token ids with; those of a continuation are in another trajectory."""
    asked: set[str] = set()
    while missing := {
        c.parent_call_id
        for c in material.calls.values()
        if c.prompt_shared and c.parent_call_id not in material.calls and c.parent_call_id not in asked
    }:
        asked |= missing
        homes = await _rows(store, missing, lambda keys: select(calls.c.trajectory_id).where(calls.c.id.in_(keys)))
        await _add_calls(store, material, calls.c.trajectory_id, {row.trajectory_id for row in homes})


async def _add_choices(store: Store, material: ViewRows) -> None:
    wanted = _columns(choices, material.with_tokens)
    of_calls = await _rows(store, material.calls, lambda keys: select(*wanted).where(choices.c.call_id.in_(keys)))
    for row in sorted(of_calls, key=lambda r: (r.call_id, r.index)):
        material.choices.setdefault(row.call_id, []).append(row)


def _blobs_of(of_calls: Iterable[Row]) -> set[bytes]:
    return {b for c in of_calls for b in (c.tools_blob_id, c.format_blob_id, c.request_blob_id) if b is not None}


async def _add_blobs(store: Store, material: ViewRows, ids: Iterable[bytes]) -> None:
    wanted = select(blobs.c.id, blobs.c.content)
    for row in await _rows(store, ids, lambda keys: wanted.where(blobs.c.id.in_(keys))):
        material.blobs[row.id] = row.content


async def _add_nodes(store: Store, material: ViewRows, shown: Iterable[Row]) -> None:
    """Add the messages of all conversations: first the nodes, then each message once."""
    ends = {c.prompt_node_id for c in shown} | {
        choice.node_id for c in shown for choice in material.choices.get(c.id, ())
    }
    above = await _rows(store, sorted(end for end in ends if end is not None), _ancestors)
    wanted = select(nodes.c.id, nodes.c.parent_id, nodes.c.message)
    ids = sorted({row.id for row in above})
    rows = await _rows(store, ids, lambda keys: wanted.where(nodes.c.id.in_(keys)))
    marks = await run_beside_loop(
        lambda: {mark for row in rows for mark in media.media_ids(row.message)}, large=len(rows) > _MANY
    )
    await _add_blobs(store, material, marks)

    def restore() -> None:
        for row in rows:
            material.nodes[row.id] = (row.parent_id, restore_message(row.message, material.blobs))

    await run_beside_loop(restore, large=len(rows) > _MANY)


def _ancestors(ends: Sequence[bytes]) -> Select[Any]:
    """The query for the nodes from some ends up to their roots; UNION visits shared nodes once."""
    start = select(nodes.c.id, nodes.c.parent_id).where(nodes.c.id.in_(ends)).cte("up", recursive=True)
    up = start.union(select(nodes.c.id, nodes.c.parent_id).join(start, nodes.c.id == start.c.parent_id))
    return select(up.c.id)


async def _scenarios(store: Store, group_ids: Collection[str]) -> dict[str, ScenarioView]:
    """Return scenarios by group id, of the groups with one."""
    joined = select(groups.c.id.label("group_id"), scenarios).join(scenarios, scenarios.c.id == groups.c.scenario_id)
    rows = await _rows(store, sorted(group_ids), lambda keys: joined.where(groups.c.id.in_(keys)))
    return {row.group_id: sql.as_view(ScenarioView, row, id=row.external_id) for row in rows}


RUNS: Final = 400  # newest trajectories that are read: a short query, however large the store


async def list_first_turns(project: Project, alias_id: str, limit: int) -> list[CallView]:
    """Return at most `limit` answered calls that begin a trajectory, newest first, with distinct prompts and tools."""
    async with project.store.read() as conn:
        found = await _first_calls(conn, project.id, alias_id)
    newest: dict[object, str] = {}
    for row in found:
        newest.setdefault((row.prompt_node_id, row.tools_blob_id), row.id)
    views = [await load_call(project.store, call_id) for call_id in list(newest.values())[:limit]]
    return [view for view in views if view is not None]


async def _first_calls(conn: AsyncConnection, project_id: str, alias_id: str) -> Sequence[Any]:
    ids = [id_ for (id_,) in await conn.execute(_runs(project_id, alias_id))]
    opening = (
        select(calls.c.id, calls.c.prompt_node_id, calls.c.tools_blob_id)
        .where(
            calls.c.trajectory_id.in_(ids),
            calls.c.parent_call_id.is_(None),
            calls.c.state == CallState.COMPLETE,
            calls.c.turn_kind == CallKind.MAIN,
            calls.c.prompt_node_id.is_not(None),
            calls.c.alias_id == alias_id,
        )
        .order_by(calls.c.started_at.desc(), calls.c.id)
    )
    return (await conn.execute(opening)).all()


def _runs(project_id: str, alias_id: str) -> Select[Any]:
    return (
        select(trajectories.c.id)
        .where(
            trajectories.c.project_id == project_id,
            trajectories.c.state == TrajectoryState.COMPLETED,
            trajectories.c.alias_id == alias_id,
            trajectories.c.purpose == Purpose.TRAIN,
            trajectories.c.continues.is_(None),
        )
        .order_by(trajectories.c.last_call_at.desc())
        .limit(RUNS)
    )
