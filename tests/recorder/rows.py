"""Rows as the proxy would have written them, for tests that begin where the proxy has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import RowMapping, Table, event, insert, select, update

from recorder.queue import claims
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart, NewScore
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.store.database import Project, Store
from recorder.store.schema import calls, choices, groups, trajectories
from recorder.store.sql import now
from tests.recorder.score_rows import new_score

PROJECT = "default"


class Rows:
    """Writes rows of one project. Times default to the database's now."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._numbers = count(1)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):04d}"

    async def alias(self, name: str = "helpdesk") -> AliasView:
        return await aliases.ensure_alias(Project(self.store, PROJECT), name, "base-model", "fingerprint-1")

    async def group(self, **values: Any) -> str:
        row: dict[str, Any] = {
            "id": self._id("grp"),
            "project_id": PROJECT,
            "state": "open",
            "opened_at": now(),
            "joined_at": now(),
            "last_call_at": now(),
        }
        await self.insert(groups, {**row, **values})
        return str(values.get("id", row["id"]))

    async def trajectory(self, group_id: str | None = None, *, answered: bool = True, **values: Any) -> str:
        row: dict[str, Any] = {
            "id": self._id("traj"),
            "project_id": PROJECT,
            "group_id": group_id,
            "state": "open",
            "purpose": "train",
            "origin": "live",
            "tags": {},
            "started_at": now(),
            "last_call_at": now(),
        }
        await self.insert(trajectories, {**row, **values})
        trajectory_id = str(values.get("id", row["id"]))
        if answered:
            await self.call(trajectory_id, version_id=values.get("version_id"))
        return trajectory_id

    async def call(self, trajectory_id: str, *, sampled: int = 1, **values: Any) -> str:
        row: dict[str, Any] = {
            "id": self._id("call"),
            "project_id": PROJECT,
            "trajectory_id": trajectory_id,
            "model": "helpdesk",
            "dialect": "chat",
            "endpoint": "/v1/chat/completions",
            "stream": False,
            "state": "complete",
            "turn_kind": "main",
            "attribution_source": "path",
            "attribution_confidence": "stated",
            "sampling": {},
            "started_at": now(),
        }
        await self.insert(calls, {**row, **values})
        call_id = str(values.get("id", row["id"]))
        for index in range(sampled):
            await self.insert(choices, {"call_id": call_id, "index": index, "trainable": True})
        return call_id

    async def ready_group(self, members: int = 2, *, purpose: str = "train", **values: Any) -> str:
        group_id = await self.group(**{"state": "ready", "ready_at": now(), **values})
        for _ in range(members):
            of_group = {name: values[name] for name in ("alias_id", "version_id") if name in values}
            await self.trajectory(group_id, state="completed", purpose=purpose, ended_at=now(), **of_group)
        return group_id

    async def scored_group(self, members: int = 2, *, purpose: str = "train", **values: Any) -> str:
        group_id = await self.ready_group(members, purpose=purpose, **values)
        await self.score(group_id)
        return group_id

    async def score(self, group_id: str, owner: str = "judge", **values: Any) -> str:
        claim = await claims.claim_one_for_judging(self.store, group_id, owner, 60)
        assert claim is not None
        return await scores.record_score(self.store, claim, await self.judgement(claim, **values))

    async def judgement(self, claim: GroupClaim, **values: Any) -> NewScore:
        ids = await self.members(claim.group_id)
        parts = [NewPart(id_, "reward", index / max(len(ids) - 1, 1)) for index, id_ in enumerate(ids)]
        return new_score(**{"recipe_hash": "recipe", "prompt_hash": "prompt", "parts": parts, **values})

    async def members(self, group_id: str) -> list[str]:
        async with self.store.read() as conn:
            query = select(trajectories.c.id).where(trajectories.c.group_id == group_id).order_by(trajectories.c.id)
            return list((await conn.execute(query)).scalars())

    async def get(self, table: Table, object_id: str) -> RowMapping:
        async with self.store.read() as conn:
            return (await conn.execute(select(table).where(table.c.id == object_id))).mappings().one()

    async def state(self, table: Table, object_id: str) -> str:
        return str((await self.get(table, object_id))["state"])

    async def all(self, table: Table) -> list[RowMapping]:
        async with self.store.read() as conn:
            return list((await conn.execute(select(table))).mappings().all())

    async def set(self, table: Table, object_id: str, **values: Any) -> None:
        async with self.store.write() as conn:
            await conn.execute(update(table).where(table.c.id == object_id).values(**values))

    @contextmanager
    def statements(self, *, of_reads: bool = False) -> Iterator[list[str]]:
        """The statements of writing transactions meanwhile, or of reading ones."""
        seen: list[str] = []
        engine = (self.store._reader if of_reads else self.store._writer).sync_engine

        def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
            seen.append(statement)

        event.listen(engine, "before_cursor_execute", note)
        yield seen
        event.remove(engine, "before_cursor_execute", note)

    async def insert(self, table: Table, row: Mapping[str, Any]) -> None:
        async with self.store.write() as conn:
            await conn.execute(insert(table).values(**row))
