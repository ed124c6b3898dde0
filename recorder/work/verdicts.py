"""Verdicts on single runs, by a hash of what was asked: what a judge said once is not asked again.

Owns: the rows. Refuses: what a hash is made of and what a verdict says (`judge.rewards.rubric`). A verdict quotes its
run, and goes with it when it is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Text, exists, literal, select

from recorder.store import sql
from recorder.store.database import Store, now
from recorder.store.schema import trajectories, verdicts


@dataclass(frozen=True, slots=True)
class KeptVerdicts:
    """What a judge said about one run: JSON, and the version that said it."""

    verdicts: str
    judge_version: str | None


async def find(store: Store, project_id: str, hash_: str) -> KeptVerdicts | None:
    """What was said to the same question, None where nothing was."""
    v = verdicts.c
    query = select(v.verdicts, v.judge_version).where(v.project_id == project_id, v.hash == hash_)
    async with store.read() as conn:
        row = (await conn.execute(query)).first()
    return KeptVerdicts(row.verdicts, row.judge_version) if row is not None else None


async def keep(
    store: Store, project_id: str, hash_: str, trajectory_id: str, said: str, judge_version: str | None
) -> None:
    """Keep what was said, in place of what was said before, unless the run was deleted meanwhile."""
    columns = ["project_id", "hash", "trajectory_id", "verdicts", "judge_version", "created_at"]
    texts = [literal(text, Text) for text in (project_id, hash_, trajectory_id, said, judge_version)]
    row = select(*texts, now())
    row = row.where(exists().where(trajectories.c.id == trajectory_id))
    async with store.write() as conn:
        statement = sql.insert(conn, verdicts).from_select(columns, row)
        newer = {name: statement.excluded[name] for name in columns if name not in ("project_id", "hash")}
        await conn.execute(statement.on_conflict_do_update(index_elements=["project_id", "hash"], set_=newer))
