"""Everybody who moves an alias along its line, without a model: trainer, controller, person, and what kills them.

The trainer takes the store's real way through a step and computes nothing; the controller decides as it is told. A kill
is an exception before one chosen statement: SQLite rolls the transaction back, as it does after `kill -9`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sqlalchemy import event, select, update

from recorder.errors import Conflict
from recorder.maintenance.sweep import sweep
from recorder.queue import claims, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import rescoring, scores
from recorder.queue.leases import Lease
from recorder.queue.training import steps
from recorder.queue.training.steps import StepView
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import UNDECIDED, GroupState, StepState, VersionState
from recorder.store import ledger, schema
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT, Rows

LEASE_S = 60.0
_OWNERS = count(1)


class Killed(BaseException):
    """A process that is no more: nothing in it may catch this."""


@dataclass
class Statements:
    """Counts statements and commits, and kills at one of them."""

    kill_at: int | None = None
    seen: int = 0

    def note(self, *_: object) -> None:
        self.seen += 1
        if self.seen - 1 == self.kill_at:
            raise Killed


@contextmanager
def counting(store: Store, kill_at: int | None = None) -> Iterator[Statements]:
    """Count what is executed within; with `kill_at` that one is not executed, and nothing after it."""
    statements = Statements(kill_at)
    engines = [store._writer.sync_engine, store._reader.sync_engine]
    heard = [(engine, name) for engine in engines for name in ("before_cursor_execute", "commit")]
    for engine, name in heard:
        event.listen(engine, name, statements.note)
    try:
        yield statements
    finally:
        for engine, name in heard:
            event.remove(engine, name, statements.note)


@dataclass
class Half:
    """A step that has begun and is not finished."""

    lease: Lease
    claims: Sequence[GroupClaim]
    step: StepView
    version: VersionView


@dataclass
class Line:
    """One alias, and those who work on it."""

    rows: Rows
    alias: AliasView
    owner: str = ""
    process: str = ""  # the name of a real process as a holder of leases
    groups: list[str] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.rows.store

    async def traffic(self, number: int = 1) -> None:
        """Groups of two runs, scored."""
        for _ in range(number):
            self.groups.append(await self.rows.scored_group(alias_id=self.alias.id))

    async def until_killed(self, work: Callable[[], Awaitable[Any]], kill_at: int | None) -> bool:
        """Work, and be killed at a statement; whether that came. What the store refuses is no bug here."""
        with counting(self.store, kill_at):
            try:
                with suppress(Conflict):
                    await work()
            except Killed:
                return True
        return False

    async def time_passes(self, seconds: float) -> None:
        """All leases come nearer to their end, and the sweep runs."""
        async with self.store.write() as conn:
            for table in (schema.leases, schema.groups):
                await conn.execute(update(table).values(lease_expires_at=table.c.lease_expires_at - seconds))
        await sweep(Project(self.store, PROJECT), RecorderSettings())

    # --- trainer

    async def begin(self, limit: int = 3) -> Half | None:
        """Take the alias as a new process does, claim groups and begin a step. None: there is nothing to do."""
        self.owner = self.process or f"trainer-{next(_OWNERS)}"
        lease = await leases.acquire_lease(
            Project(self.store, PROJECT), leases.trainer_lease(self.alias.name), self.owner, LEASE_S
        )
        if lease is None:
            return None
        await steps.take_over(self.store, self.alias.id, lease=lease)
        if await versions.find_pending_version(self.store, self.alias.id) is not None:
            await leases.release_lease(self.store, lease)
            return None
        held = await claims.claim_for_training(self.store, self.alias.id, self.owner, LEASE_S, limit=limit)
        if not held:
            await leases.release_lease(self.store, lease)
            return None
        live = await self.live()
        step = await steps.begin_step(self.store, self.alias.id, live, groups=held, lease=lease)
        return Half(
            lease, held, step, await versions.allocate_version(self.store, self.alias.id, live, step_id=step.id)
        )

    async def finish(self, half: Half) -> None:
        """Publish the version; every run but the first of each group was trained on."""
        members = [await self.rows.members(claim.group_id) for claim in half.claims]
        await steps.finish_step(
            self.store, half.step.id, version_id=half.version.id, path="/nowhere", engine_name=half.version.engine_name,
            manifest_sha256="0", metrics={}, checkpoint_path=None, groups=half.claims,
            trained=[id_ for ids in members for id_ in ids[1:]], lease=half.lease,
        )  # fmt: skip
        await leases.release_lease(self.store, half.lease)

    async def give_up(self, half: Half) -> None:
        """A step that failed by itself."""
        await steps.abandon_step(self.store, half.step.id, "the loss was nan", claims=half.claims)
        await leases.release_lease(self.store, half.lease)

    async def train(self) -> None:
        """A whole step."""
        half = await self.begin()
        if half is not None:
            await self.finish(half)

    # --- controller and person

    async def live(self) -> str:
        """The id of the live version."""
        alias = await aliases.get_alias(Project(self.store, PROJECT), self.alias.name)
        assert alias.live_version_id is not None
        return alias.live_version_id

    async def decide(self, how: str) -> None:
        """Bring the version that waits to its end: live, by way of a canary or not, or rejected."""
        version = await versions.find_pending_version(self.store, self.alias.id)
        if version is None:
            return
        if version.parent_id != await self.live():
            await versions.reject_version(self.store, version.id, "parent_left: x", lessons="again", who="controller")
            return
        if version.state is VersionState.WRITTEN and how != "unloadable":
            version = await versions.mark_version(self.store, version.id, VersionState.LOADED)
        if version.state is VersionState.LOADED:
            version = await versions.mark_version(self.store, version.id, VersionState.GATED)
        match how:
            case "live":
                await alias_moves.set_live(self.store, self.alias.id, version.id, why="gate", who="controller")
            case "canary":
                await alias_moves.set_canary(self.store, self.alias.id, version.id, 0.1)
            case "unloadable":
                await versions.reject_version(
                    self.store, version.id, "load_refused: x", lessons="again", who="controller"
                )
            case "bad":
                await versions.reject_version(self.store, version.id, "behaviour: x", lessons="left_out", who="gate")

    async def again(self, reason: str = "version_rejected") -> None:
        """What `hone score --again` does, to one group that was left out for its version."""
        async with self.store.read() as conn:
            these = (schema.groups.c.alias_id == self.alias.id, schema.groups.c.reason == reason)
            found = (await conn.execute(select(schema.groups.c.id).where(*these).limit(1))).scalar_one_or_none()
        if found is not None:
            claim = await claims.claim_one_for_judging(
                self.store, found, "person", LEASE_S, ended_for=rescoring.rescorable_reasons(anew=True)
            )
            assert claim is not None
            await scores.record_score(self.store, claim, await self.rows.judgement(claim))

    async def judge(self) -> None:
        """Score what waits: a person's judging may have been killed."""
        while claim := await claims.claim_for_judging(Project(self.store, PROJECT), "judge", LEASE_S):
            await scores.record_score(self.store, claim, await self.rows.judgement(claim))

    async def promote(self, version_id: str) -> None:
        """By hand."""
        await alias_moves.set_live(self.store, self.alias.id, version_id, why="promote")

    async def roll_back(self) -> None:
        """By hand."""
        await alias_moves.rollback(self.store, self.alias.id)

    # --- what must hold

    async def check(self) -> None:
        """What the ledger and the groups say is what the live version's line was trained on, and no group is lost."""
        line = set(await versions.list_ancestors(self.store, await self.live()))
        known = {version.id: version for version in await versions.list_versions(self.store, self.alias.id)}
        used: dict[str, list[str]] = {}  # group → versions of the line
        waiting: set[str] = set()
        async with self.store.read() as conn:
            query = (
                select(schema.step_groups.c.group_id, schema.steps.c.version_id)
                .join(schema.steps, schema.steps.c.id == schema.step_groups.c.step_id)
                .where(schema.steps.c.alias_id == self.alias.id, schema.steps.c.state == StepState.DONE)
            )
            for group_id, version_id in await conn.execute(query):
                if version_id in line:
                    used.setdefault(group_id, []).append(version_id)
                elif known[version_id].state in UNDECIDED:
                    waiting.add(group_id)
            query = (
                select(schema.step_trajectories.c.trajectory_id)
                .join(schema.steps, schema.steps.c.id == schema.step_trajectories.c.step_id)
                .where(schema.steps.c.version_id.in_(line))
            )
            runs = set((await conn.execute(query)).scalars())
            query = select(schema.groups).where(schema.groups.c.alias_id == self.alias.id)
            groups = {row.id: row for row in await conn.execute(query)}
        assert all(len(by) == 1 for by in used.values()), "a group was trained twice along the line"
        assert await self.trained_runs() == runs
        assert {id_ for id_, row in groups.items() if row.state == GroupState.TRAINED} == set(used)
        assert {id_ for id_, row in groups.items() if row.state == GroupState.TRIED} <= waiting
        for row in groups.values():
            held = row.lease_owner is not None
            assert held == (row.state in (GroupState.TRAINING, GroupState.JUDGING)), dict(row._mapping)
            assert row.state != GroupState.LEFT_OUT or row.reason in ("version_rejected", "versions_failed")
        assert set(groups) == set(self.groups)
        made = [v for v in known.values() if v.state in UNDECIDED - {VersionState.ALLOCATED}]
        assert len(made) <= 1

    async def find_groups(self) -> None:
        """Learn of the groups that another process was told about."""
        async with self.store.read() as conn:
            query = select(schema.groups.c.id).where(schema.groups.c.alias_id == self.alias.id)
            self.groups = list((await conn.execute(query)).scalars())

    async def trained_runs(self) -> set[str]:
        """The runs of the alias that the ledger calls trained."""
        async with self.store.read() as conn:
            runs = schema.trajectories.c
            own = set((await conn.execute(select(runs.id).where(runs.alias_id == self.alias.id))).scalars())
        listed = await ledger.latest_entries(Project(self.store, PROJECT), code=ledger.TRAINED, limit=1_000_000)
        assert len({entry.object_id for entry in listed}) == len(listed)
        return own & {entry.object_id for entry in listed}


async def line(rows: Rows, name: str = "helpdesk") -> Line:
    """A new alias on its version 0."""
    return Line(rows, await rows.alias(name))
