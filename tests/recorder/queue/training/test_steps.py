"""A step becomes visible whole, or not at all."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from recorder.errors import Conflict, LeaseLost, NotFound
from recorder.queue import campaigns, claims, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.training import steps
from recorder.queue.training.steps import StepView
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import StepState, VersionState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.store.schema import groups, step_trajectories
from recorder.store.schema import steps as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows

ROOT = Path(__file__).parents[4]


@dataclass
class Work:
    """A trainer in the middle of a step."""

    alias: AliasView
    step: StepView
    version: VersionView
    claims: list[GroupClaim]


async def begin(rows: Rows, alias: AliasView | None = None, *, campaign_id: str | None = None) -> Work:
    alias = alias or await rows.alias()
    for _ in range(2):
        await rows.scored_group(alias_id=alias.id, campaign_id=campaign_id)
    claimed = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9, campaign_id=campaign_id)
    assert alias.live_version_id is not None
    step = await steps.begin_step(rows.store, alias.id, alias.live_version_id, campaign_id, groups=claimed)
    version = await versions.allocate_version(rows.store, alias.id, alias.live_version_id, step_id=step.id)
    return Work(alias, step, version, claimed)


def row(work: Work) -> LedgerRow:
    return LedgerRow(PROJECT, "trajectory", "traj", "zero_variance", {"step": work.step.id})


async def finish(rows: Rows, work: Work, **changed: object) -> StepView:
    arguments = {
        "version_id": work.version.id,
        "path": "/adapters/helpdesk@1-abc",
        "engine_name": "helpdesk@1-abc",
        "manifest_sha256": "abc",
        "metrics": {"loss": 0.5},
        "checkpoint_path": "/checkpoints/1",
        "groups": work.claims,
        "trained": ["traj"],
        "ledger_rows": [row(work)],
    }
    return await steps.finish_step(rows.store, work.step.id, **{**arguments, **changed})  # type: ignore[arg-type]  # a mix


async def assert_nothing_is_visible(rows: Rows, work: Work) -> None:
    assert await rows.state(table, work.step.id) == "running"
    version = await versions.get_version(rows.store, work.version.id)
    assert (version.state, version.path, version.metrics) == (VersionState.ALLOCATED, None, {})
    assert {await rows.state(groups, c.group_id) for c in work.claims} <= {"training", "judging"}
    assert await rows.all(step_trajectories) == []
    assert await ledger.object_entries(rows.store, "trajectory", "traj") == []
    assert await steps.list_steps(rows.store, work.alias.id, state=StepState.DONE) == []


async def test_a_finished_step_shows_version_groups_and_ledger_together(rows: Rows) -> None:
    work = await begin(rows)
    done = await finish(rows, work)
    assert (done.state, done.number, done.version_id) == (StepState.DONE, 1, work.version.id)
    assert (done.metrics, done.checkpoint_path) == ({"loss": 0.5}, "/checkpoints/1")
    version = await versions.get_version(rows.store, work.version.id)
    assert (version.state, version.engine_name, version.path) == (
        VersionState.WRITTEN, "helpdesk@1-abc", "/adapters/helpdesk@1-abc",
    )  # fmt: skip
    assert {await rows.state(groups, c.group_id) for c in work.claims} == {"tried"}
    assert await steps.list_step_groups(rows.store, done.id) == {c.group_id: c.score_id for c in work.claims}
    assert len(await ledger.object_entries(rows.store, "trajectory", "traj")) == 1
    assert await steps.list_steps(rows.store, work.alias.id, state=StepState.DONE) == [done]
    assert await steps.step_of_version(rows.store, work.version.id) == done


async def test_a_figure_that_could_not_be_had_keeps_no_step_back(rows: Rows) -> None:
    done = await finish(rows, await begin(rows), metrics={"loss": 0.5, "entropy": math.nan, "ratio_max": math.inf})
    assert done.metrics == {"loss": 0.5, "ratio_max": math.inf}


async def test_a_version_that_is_infinitely_far_from_live_is_rejected(rows: Rows) -> None:
    work = await begin(rows)
    await finish(rows, work)
    figures = {"kl_live": math.inf, "entropy_live": math.nan}
    await versions.reject_version(
        rows.store, work.version.id, "kl: inf", lessons="left_out", who="gate", figures=figures
    )
    told = [entry.detail for entry in await ledger.object_entries(rows.store, "version", work.version.id)]
    assert {"kl_live": math.inf, "entropy_live": None} in [(one or {}).get("figures") for one in told]


async def test_finishing_twice_is_refused(rows: Rows) -> None:
    work = await begin(rows)
    await finish(rows, work)
    with pytest.raises(Conflict):
        await finish(rows, work)
    assert len(await ledger.object_entries(rows.store, "trajectory", "traj")) == 1


# nothing of a step that fails in the middle is left


async def test_a_lost_group_leaves_nothing_of_the_step(rows: Rows) -> None:
    work = await begin(rows)
    lost = work.claims[-1]
    await rows.set(groups, lost.group_id, state="scored", lease_owner=None)
    assert await claims.claim_one_for_judging(rows.store, lost.group_id, "judge", 60) is not None
    with pytest.raises(LeaseLost):
        await finish(rows, work)
    await assert_nothing_is_visible(rows, work)


async def test_an_exception_at_the_very_end_leaves_nothing_of_the_step(rows: Rows) -> None:
    work = await begin(rows)

    def failing() -> Iterator[LedgerRow]:
        yield row(work)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        await finish(rows, work, ledger_rows=failing())
    await assert_nothing_is_visible(rows, work)


async def test_no_step_begins_on_a_group_without_a_score(rows: Rows) -> None:
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id)
    [claim] = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9)
    with pytest.raises(Conflict, match="has no score"):
        await steps.begin_step(rows.store, alias.id, str(alias.live_version_id), groups=[replace(claim, score_id=None)])
    assert await steps.list_steps(rows.store, alias.id) == []


async def test_other_groups_than_the_step_began_with_leave_nothing_of_it(rows: Rows) -> None:
    work = await begin(rows)
    with pytest.raises(Conflict, match="did not begin with the groups"):
        await finish(rows, work, groups=work.claims[:1])
    await assert_nothing_is_visible(rows, work)


async def test_a_version_of_another_alias_leaves_nothing_of_the_step(rows: Rows) -> None:
    work = await begin(rows)
    other = await rows.alias("other")
    assert other.live_version_id is not None
    foreign = await versions.allocate_version(rows.store, other.id, other.live_version_id)
    with pytest.raises(NotFound, match="its alias has no version"):
        await finish(rows, work, version_id=foreign.id)
    await assert_nothing_is_visible(rows, work)


async def test_a_lost_alias_leaves_nothing_of_the_step(rows: Rows) -> None:
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), leases.trainer_lease("helpdesk"), "t", -1)
    assert lease is not None
    work = await begin(rows)
    assert await leases.acquire_lease(Project(rows.store, PROJECT), lease.name, "other", 60) is not None
    with pytest.raises(LeaseLost):
        await finish(rows, work, lease=lease)
    await assert_nothing_is_visible(rows, work)


KILLED = """
import asyncio, os, signal, sys
from recorder.queue.training import steps
from recorder.queue.claims import GroupClaim
from recorder.store.ledger import LedgerRow
from recorder.store.database import Store
url, step, version, *groups = sys.argv[1:]
claims = [GroupClaim(g.split(",")[0], "t", 2, 0.0, g.split(",")[1], "default", None, None, 0) for g in groups]
def dying():
    yield LedgerRow("default", "trajectory", "traj", "zero_variance")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(steps.finish_step(Store(url), step, version_id=version, path="p", engine_name="e", manifest_sha256="m",
    metrics={}, checkpoint_path=None, groups=claims, ledger_rows=dying()))
"""


@pytest.mark.slow
async def test_a_trainer_killed_in_the_middle_leaves_nothing_and_locks_nobody_out(rows: Rows) -> None:
    work = await begin(rows)
    url = rows.store.url.render_as_string(hide_password=False)
    held = [f"{c.group_id},{c.score_id}" for c in work.claims]
    killed = subprocess.run([sys.executable, "-c", KILLED, url, work.step.id, work.version.id, *held], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    await assert_nothing_is_visible(rows, work)
    assert (await finish(rows, work)).state is StepState.DONE


# giving up


async def test_abandoning_gives_the_groups_back_and_abandons_the_version(rows: Rows) -> None:
    work = await begin(rows)
    await steps.abandon_step(rows.store, work.step.id, "out_of_memory", claims=work.claims)
    assert {await rows.state(groups, c.group_id) for c in work.claims} == {"scored"}
    version = await versions.get_version(rows.store, work.version.id)
    assert (version.state, version.reason) == (VersionState.ABANDONED, "out_of_memory")
    [entry] = await ledger.object_entries(rows.store, "step", work.step.id)
    assert (entry.code, entry.detail) == ("abandoned", {"reason": "out_of_memory"})
    with pytest.raises(Conflict):
        await steps.abandon_step(rows.store, work.step.id, "again")
    with pytest.raises(Conflict):
        await finish(rows, work)


async def test_abandoning_leaves_groups_alone_that_are_anothers_by_now(rows: Rows) -> None:
    work = await begin(rows)
    await rows.set(groups, work.claims[0].group_id, lease_owner="other", lease_epoch=9)
    await steps.abandon_step(rows.store, work.step.id, "x", claims=work.claims)
    assert [await rows.state(groups, c.group_id) for c in work.claims] == ["training", "scored"]


async def test_the_next_trainer_abandons_what_a_dead_one_left(rows: Rows) -> None:
    work = await begin(rows)
    stray = await versions.allocate_version(rows.store, work.alias.id, work.version.parent_id or "")
    after = await steps.begin_step(rows.store, work.alias.id, work.step.parent_version_id)
    assert after.number == 2
    assert await rows.state(table, work.step.id) == "abandoned"
    states = [(await versions.get_version(rows.store, v)).state for v in (work.version.id, stray.id)]
    assert states == [VersionState.ABANDONED] * 2
    with pytest.raises(Conflict):
        await finish(rows, work)
    with pytest.raises(Conflict, match="another trainer took over the alias"):
        await versions.allocate_version(rows.store, work.alias.id, "v", step_id=work.step.id)


async def test_a_step_needs_the_alias_and_its_lease(rows: Rows) -> None:
    with pytest.raises(NotFound, match="no alias"):
        await steps.begin_step(rows.store, "nothing", "v")
    alias = await rows.alias()
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), leases.trainer_lease("helpdesk"), "t", 60)
    assert lease is not None
    await leases.release_lease(rows.store, lease)
    with pytest.raises(LeaseLost):
        await steps.begin_step(rows.store, alias.id, "v", lease=lease)


async def test_steps_count_along_the_alias_and_in_their_campaign(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", {})
    first = await begin(rows, alias, campaign_id=campaign.id)
    await finish(rows, first)
    await versions.mark_version(rows.store, first.version.id, VersionState.REJECTED, "probe_failed: x")
    second = await begin(rows, await aliases.get_alias(Project(rows.store, PROJECT), "helpdesk"))
    done = await finish(rows, second, ledger_rows=[])
    assert [s.number for s in await steps.list_steps(rows.store, alias.id)] == [2, 1]
    assert [s.id for s in await steps.list_steps(rows.store, alias.id, campaign_id=campaign.id)] == [first.step.id]
    assert (await campaigns.get_campaign(rows.store, campaign.id)).steps_done == 1
    assert done.ended_at is not None
    async with rows.store.read() as conn:
        assert abs(done.ended_at - (await conn.execute(now().select())).scalar_one()) < 60


async def test_version_0_was_made_by_no_step(rows: Rows) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    assert await steps.step_of_version(rows.store, alias.live_version_id) is None
