"""Verdicts on single runs, by a hash of what was asked: what a judge said once is not asked again.

Owns: the rows. Refuses: what a hash is made of and what a verdict says (`judge.rewards.known`). A verdict quotes its
run, and goes with it when it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Text, bindparam, exists, select

from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import trajectories, verdicts
from recorder.store.sql import now


@dataclass(frozen=True, slots=True)
class KeptVerdicts:
    """What a judge said about one run: JSON, and the version that said it."""

    verdicts: str
    judge_version: str | None


@dataclass(frozen=True, slots=True)
class NewVerdicts:
    """What a judge said about one run just now."""

    hash: str
    trajectory_id: str
    verdicts: str
    judge_version: str | None


async def find(project: Project, hashes: Sequence[str]) -> dict[str, KeptVerdicts]:
    """What was said to the same questions, by hash; those to which nothing was are not in it."""
    v = verdicts.c
    query = select(v.hash, v.verdicts, v.judge_version).where(v.project_id == project.id, v.hash.in_(hashes))
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    return {row.hash: KeptVerdicts(row.verdicts, row.judge_version) for row in rows}


async def keep(project: Project, said: Sequence[NewVerdicts], *, anew: bool = False) -> None:
    """Keep at least one judge's word, except where the run was deleted meanwhile.

    What was kept before stays; with `anew` it is replaced.
    """
    texts = ("project_id", "hash", "trajectory_id", "verdicts", "judge_version")
    row = select(*(bindparam(f"new_{name}", type_=Text) for name in texts), now())
    row = row.where(exists().where(trajectories.c.id == bindparam("new_trajectory_id", type_=Text)))
    in_order = sorted(said, key=lambda one: one.hash)  # two who keep the same never wait for each other
    values = [{f"new_{name}": value for name, value in asdict(one).items()} for one in in_order]
    async with project.store.write() as conn:
        new = sql.insert(conn, verdicts).from_select([*texts, "created_at"], row)
        newer = {name: new.excluded[name] for name in ("trajectory_id", "verdicts", "judge_version", "created_at")}
        in_place = new.on_conflict_do_update(index_elements=["project_id", "hash"], set_=newer)
        statement = in_place if anew else new.on_conflict_do_nothing()
        await conn.execute(statement, [{"new_project_id": project.id, **value} for value in values])
