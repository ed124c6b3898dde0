"""What makes pairs wait for a person: groups that judges disagree about, runs of two versions, an alarm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import update

from recorder.queue import claims
from recorder.queue.judging import cross_checks, scores
from recorder.queue.judging.cross_checks import NewCrossCheck, PartVerdict, SwitchRule
from recorder.queue.judging.scores import NewPart
from recorder.queue.judging.switches import STRONG, group_tau
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.store.schema import trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score

ME = "me"


async def disputed_group(rows: Rows, runs: int = 3, *, agreement: float = 0.1, **values: Any) -> tuple[str, list[str]]:
    """A group about which judges disagree; its id and its runs'."""
    group = await rows.ready_group(members=runs, **values)
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    members = await rows.members(group)
    parts = [NewPart(id_, "reward", 0.5) for id_ in members]
    await scores.record_score(
        rows.store, claim, new_score("recipe", parts=parts, agreement=agreement, disputed="they disagree")
    )
    return group, members


async def two_versions(rows: Rows) -> tuple[AliasView, VersionView, VersionView]:
    """An alias whose version 1 is live, and the base before it."""
    alias = await rows.alias()
    assert alias.live_version_id is not None
    base = await versions.get_version(rows.store, alias.live_version_id)
    made = await versions.allocate_version(rows.store, alias.id, base.id)
    for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
        await versions.mark_version(rows.store, made.id, state)
    await alias_moves.set_live(rows.store, alias.id, made.id, why="promote", who="test")
    return await aliases.get_alias(Project(rows.store, PROJECT), alias.name), base, made


async def scored_task(
    rows: Rows, alias: AliasView, version: VersionView, task: str, *rewards: float, absolute: bool = True
) -> list[str]:
    """Runs of one version at one task, scored."""
    group = await rows.ready_group(members=len(rewards), alias_id=alias.id, version_id=version.id, implicit_key=task)
    members = await rows.members(group)
    async with rows.store.write() as conn:
        await conn.execute(
            update(trajectories).where(trajectories.c.id.in_(members)).values(version_id=version.id, alias_id=alias.id)
        )
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", value) for id_, value in zip(members, rewards, strict=True)]
    await scores.record_score(rows.store, claim, new_score("recipe", parts=parts, absolute=absolute))
    return members


DRIFTS = SwitchRule(0.5, 10, "cheap-1", "strong-1")


async def judged_twice(rows: Rows, cheap: Sequence[float], strong: Sequence[float]) -> tuple[str, list[str]]:
    """A group that the cheap judge scored so, and about which the strong one says so; its id and its runs'."""
    group = await rows.ready_group(members=len(cheap))
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    members = await rows.members(group)
    own, other = dict(zip(members, cheap, strict=True)), dict(zip(members, strong, strict=True))
    parts = [NewPart(id_, name, value) for id_, value in own.items() for name in ("reward", "ruler")]
    await scores.record_score(rows.store, claim, new_score("recipe", parts=parts))
    said = [PartVerdict(id_, "ruler", value) for id_, value in other.items()]
    second = NewCrossCheck("helpdesk", "default", "pair", STRONG, "strong-1", parts=said, tau=group_tau([own], [other]))
    await cross_checks.record_cross_check(Project(rows.store, PROJECT), group, second, DRIFTS)
    return group, members


async def alarm(rows: Rows, *runs: str, rule: str = "length") -> None:
    """A campaign's alarm that names runs, as a campaign writes it."""
    detail = {
        "step": 4, "rule": rule, "then": "pause", "detail": "it grows", "figures": {},
        "evidence": [{"trajectory": run, "reward": 1.0, "part": "ruler"} for run in runs],
    }  # fmt: skip
    async with rows.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", "cmp_1", "alarm", detail)])
