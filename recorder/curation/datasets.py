"""Datasets: named lists of trajectories, for filters of lists, exports and scenarios.

Owns: datasets and which trajectories are in them. Refuses: the lists that show them (`recorder.views.lists`), and
deleting trajectories (`recorder.maintenance.deletion`), which then leave their datasets and are counted there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import check_external, new_id
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import dataset_trajectories, datasets, trajectories
from recorder.store.sql import now

MOST_DATASETS: Final = 1000  # of a project
MOST_TRAJECTORIES: Final = 20_000  # of a dataset: its ids are answered as one list
_AT_ONCE: Final = 500  # ids of one statement
_d = datasets.c
_in = dataset_trajectories.c


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named list of trajectories. Times are unix seconds.

    `trajectories`: how many it has. `deleted`: how many of its trajectories were deleted from the store since.
    `made_by`: a key's id, or the actor while no key was required.
    """

    id: str
    name: str
    trajectories: int
    deleted: int
    created_at: float
    made_by: str


class Change(StrEnum):
    """What became of one trajectory that was added to a dataset, or removed from it."""

    DONE = "done"
    UNCHANGED = "unchanged"  # it was in the dataset already, or was not
    MISSING = "missing"  # the project has no such trajectory


async def list_datasets(project: Project) -> list[Dataset]:
    """Return the project's datasets, by name."""
    async with project.store.read() as conn:
        rows = await conn.execute(_read(project.id).order_by(_d.name))
        return sql.as_views(Dataset, rows)


async def get_dataset(project: Project, name: str) -> Dataset:
    """Return the dataset of that name. Raises NotFound."""
    async with project.store.read() as conn:
        row = (await conn.execute(_read(project.id).where(_d.name == name))).first()
    if row is None:
        raise _no_dataset(project.id, name)
    return sql.as_view(Dataset, row)


async def dataset_ids(project: Project, name: str) -> list[str]:
    """Return the ids of a dataset's trajectories, the newest trajectory first. Raises NotFound."""
    dataset = await get_dataset(project, name)
    query = select(_in.trajectory_id).where(_in.dataset_id == dataset.id).order_by(_in.trajectory_id.desc())
    async with project.store.read() as conn:
        return list((await conn.execute(query)).scalars())


def trajectories_in(project_id: str, name: str) -> Select[tuple[str]]:
    """Return the query for the ids of a dataset's trajectories; of none without such a dataset."""
    of_name = select(_in.trajectory_id).join(datasets, _d.id == _in.dataset_id)
    return of_name.where(_d.project_id == project_id, _d.name == name)


async def create_dataset(project: Project, name: str, by: str) -> Dataset:
    """Create an empty dataset. Raises InvalidId, and Conflict where the name is taken or there are too many."""
    check_external(name, "the dataset")
    row = {"id": new_id("dataset"), "project_id": project.id, "name": name, "created_at": now(), "made_by": by}
    async with project.store.write() as conn:
        number = select(func.count()).select_from(datasets).where(_d.project_id == project.id)
        if (await conn.execute(number)).scalar_one() >= MOST_DATASETS:
            raise Conflict(f"the project has {MOST_DATASETS} datasets already: delete one first")
        made = (await conn.execute(sql.insert_ignore(conn, datasets).values(**row).returning(_d.id))).first()
        if made is None:
            raise Conflict(f"there is a dataset {name!r} already: add to it, or choose another name")
    return await get_dataset(project, name)


async def delete_dataset(project: Project, name: str) -> None:
    """Delete a dataset; its trajectories stay. Raises NotFound."""
    async with project.store.write() as conn:
        dataset_id = await _lock(conn, project.id, name)
        await conn.execute(delete(dataset_trajectories).where(_in.dataset_id == dataset_id))
        await conn.execute(delete(datasets).where(_d.id == dataset_id))


async def add_to_dataset(project: Project, name: str, ids: Sequence[str]) -> Mapping[str, Change]:
    """Add trajectories (internal ids) to a dataset, and return what became of each.

    Raises NotFound, and Conflict if the dataset would have more than `MOST_TRAJECTORIES`: then none is added.
    """
    wanted = list(dict.fromkeys(ids))
    changes: dict[str, Change] = dict.fromkeys(wanted, Change.MISSING)
    async with project.store.write() as conn:
        dataset_id, at = await _lock(conn, project.id, name), await sql.current_time(conn)
        for page in _pages(wanted):
            present = set((await conn.execute(_members(dataset_id, page))).scalars())
            known = set((await conn.execute(_known(project.id, page))).scalars())
            changes |= dict.fromkeys(known, Change.DONE) | dict.fromkeys(present, Change.UNCHANGED)
            new = [{"dataset_id": dataset_id, "trajectory_id": id_, "added_at": at} for id_ in sorted(known - present)]
            if new:
                await conn.execute(insert(dataset_trajectories), new)
        number = select(func.count()).where(_in.dataset_id == dataset_id)
        if (await conn.execute(number)).scalar_one() > MOST_TRAJECTORIES:
            raise Conflict(f"the dataset {name!r} would have more than {MOST_TRAJECTORIES:,} trajectories")
    return changes


async def remove_from_dataset(project: Project, name: str, ids: Sequence[str]) -> Mapping[str, Change]:
    """Remove trajectories (internal ids) from a dataset, and return what became of each. Raises NotFound."""
    wanted = list(dict.fromkeys(ids))
    changes: dict[str, Change] = dict.fromkeys(wanted, Change.UNCHANGED)
    async with project.store.write() as conn:
        dataset_id = await _lock(conn, project.id, name)
        for page in _pages(wanted):
            present = list((await conn.execute(_members(dataset_id, page))).scalars())
            changes |= dict.fromkeys(present, Change.DONE)
            gone = (_in.dataset_id == dataset_id, _in.trajectory_id.in_(present))
            await conn.execute(delete(dataset_trajectories).where(*gone))
    return changes


async def leave_datasets(conn: AsyncConnection, trajectory_id: str) -> None:
    """Take a trajectory that is being deleted out of its datasets, which count it."""
    of = select(_in.dataset_id).where(_in.trajectory_id == trajectory_id)
    locked = select(_d.id).where(_d.id.in_(of)).order_by(_d.id).with_for_update()
    found = list((await conn.execute(locked)).scalars())
    if found:
        await conn.execute(update(datasets).where(_d.id.in_(found)).values(deleted=_d.deleted + 1))
        await conn.execute(delete(dataset_trajectories).where(_in.trajectory_id == trajectory_id))


def _read(project_id: str) -> Select[tuple[object, ...]]:
    number = select(func.count()).where(_in.dataset_id == _d.id).scalar_subquery()
    return select(datasets, number.label("trajectories")).where(_d.project_id == project_id)


async def _lock(conn: AsyncConnection, project_id: str, name: str) -> str:
    """Return the id of a dataset, locked for a change. Raises NotFound."""
    query = select(_d.id).where(_d.project_id == project_id, _d.name == name).with_for_update()
    id_ = (await conn.execute(query)).scalar_one_or_none()
    if id_ is None:
        raise _no_dataset(project_id, name)
    return str(id_)


def _no_dataset(project_id: str, name: str) -> NotFound:
    return NotFound(f"no dataset {name[:200]!r} in project {project_id!r}: `hone datasets list` lists them")


def _members(dataset_id: str, page: Sequence[str]) -> Select[str]:
    return select(_in.trajectory_id).where(_in.dataset_id == dataset_id, _in.trajectory_id.in_(page))


def _known(project_id: str, page: Sequence[str]) -> Select[str]:
    """The query for those of some trajectories that exist, which no deletion may take meanwhile."""
    t = trajectories.c
    mine = select(t.id).where(sql.without_index(t.project_id) == project_id, t.id.in_(page)).order_by(t.id)
    return mine.with_for_update(read=True, key_share=True)


def _pages(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
