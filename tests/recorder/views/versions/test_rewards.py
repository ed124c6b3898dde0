"""The reward of a version: which trajectories count, the mean over them, and its interval by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import update

from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.registry import versions
from recorder.store.database import Store
from recorder.store.schema import score_parts, trajectories
from recorder.views.versions import rewards
from recorder.views.versions.rewards import VersionReward, load_rewards
from tests.recorder.rows import Rows


@dataclass
class Sampled:
    """An alias with two versions, and trajectories that they sampled."""

    rows: Rows
    alias_id: str
    base: str
    first: str

    async def group(
        self, *values: float | None, by: str | None = None, unasked: bool = False, ranked: bool = False, **run: Any
    ) -> str:
        """A scored group whose members have these rewards; returns its id. `by`: the version that sampled them."""
        version = by or self.first
        run = {"alias_id": self.alias_id, "version_id": version, **run}
        group_id = await self.rows.group(state="ready", alias_id=self.alias_id, version_id=version)
        for _ in values:
            run_id = await self.rows.trajectory(group_id, state="completed", answered=False, **run)
            await self.rows.call(run_id, version_id=version)
        await self.judge(group_id, values, unasked=unasked, ranked=ranked)
        return group_id

    async def judge(
        self, group_id: str, values: tuple[float | None, ...], *, unasked: bool = False, ranked: bool = False
    ) -> None:
        """Give the members of a group these rewards."""
        claim = await claims.claim_one_for_judging(self.rows.store, group_id, "judge", 60)
        assert claim is not None
        ids = await self.rows.members(group_id)
        parts = [NewPart(id_, "reward", value, unasked=unasked) for id_, value in zip(ids, values, strict=True)]
        made = {"prompt_hash": "prompt" if ranked else None, "absolute": not ranked}
        await scores.record_score(self.rows.store, claim, await self.rows.judgement(claim, parts=parts, **made))

    async def reward(self, of: str | None = None) -> VersionReward | None:
        """The reward of a version, by default of the first that was trained."""
        async with self.rows.store.read() as conn:
            return (await load_rewards(conn, [of or self.first])).get(of or self.first)


@pytest.fixture
async def sampled(store: Store) -> Sampled:
    rows = Rows(store)
    alias = await rows.alias()
    base = alias.live_version_id or ""
    return Sampled(rows, alias.id, base, (await versions.allocate_version(store, alias.id, base)).id)


async def test_the_mean_is_over_the_trajectories_that_the_version_sampled(sampled: Sampled) -> None:
    await sampled.group(0.0, 0.5)
    await sampled.group(1.0, 1.0, 1.0)
    await sampled.group(0.25, by=sampled.base)
    found = await sampled.reward()
    assert found is not None
    assert (found.alias, found.version, found.trajectories, found.groups) == ("helpdesk", "helpdesk@1", 5, 2)
    assert found.mean == pytest.approx(0.7)
    assert not found.relative
    base = await sampled.reward(sampled.base)
    assert base is not None
    assert (base.version, base.trajectories, base.mean) == ("helpdesk@0", 1, 0.25)


@pytest.mark.parametrize("origin", ["live", "campaign", "replay"])
async def test_live_traffic_campaigns_and_replays_count(sampled: Sampled, origin: str) -> None:
    await sampled.group(0.5, 0.5, origin=origin)
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 2


@pytest.mark.parametrize(
    "run",
    [
        {"origin": "shadow"},  # answered again at one call
        {"origin": "shadow", "purpose": "eval"},  # a pair of the gate
        {"origin": "campaign", "purpose": "eval"},  # a held-out scenario of the gate
        {"origin": "campaign", "purpose": "val"},
        {"origin": "import"},
        {"purpose": "none"},
        {"state": "errored"},
        {"state": "abandoned"},
    ],
    ids=lambda run: "-".join(map(str, run.values())),
)
async def test_what_is_no_attempt_of_an_agent_counts_for_no_version(sampled: Sampled, run: dict[str, Any]) -> None:
    group_id = await sampled.group(0.0, 0.0)
    async with sampled.rows.store.write() as conn:
        await conn.execute(update(trajectories).where(trajectories.c.group_id == group_id).values(**run))
    assert await sampled.reward() is None


async def test_without_a_trajectory_there_is_no_figure(sampled: Sampled) -> None:
    assert await sampled.reward() is None
    await sampled.group(None, None)
    assert await sampled.reward() is None


async def test_rewards_that_no_judge_was_asked_for_do_not_count(sampled: Sampled) -> None:
    await sampled.group(0.9, 0.9, unasked=True)
    assert await sampled.reward() is None
    await sampled.group(0.2, 0.4)
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 2
    assert found.mean == pytest.approx(0.3)


async def test_the_current_score_counts(sampled: Sampled) -> None:
    group_id = await sampled.group(0.0, 0.0)
    await sampled.judge(group_id, (0.5, 1.0))
    found = await sampled.reward()
    assert found is not None
    assert (found.trajectories, found.mean) == (2, 0.75)


async def test_a_mixed_trajectory_counts_for_no_version(sampled: Sampled) -> None:
    await sampled.group(0.4, 0.6)
    mixed = (await sampled.rows.members(await sampled.group(1.0)))[0]
    await sampled.rows.call(mixed, version_id=sampled.base)
    found = await sampled.reward()
    assert found is not None
    assert (found.trajectories, found.mean) == (2, 0.5)
    assert await sampled.reward(sampled.base) is None


async def test_an_answer_of_another_providers_model_is_no_versions(sampled: Sampled) -> None:
    run = (await sampled.rows.members(await sampled.group(1.0)))[0]
    await sampled.rows.call(run, version_id=None)
    assert await sampled.reward() is None


@pytest.mark.parametrize(
    "call",
    [
        {"turn_kind": "aux"},
        {"turn_kind": "sub"},
        {"sampled": 0, "state": "errored"},
        {"superseded_by": "call_other"},
    ],
    ids=["auxiliary", "sub-agent", "not answered", "superseded"],
)
async def test_only_sampled_calls_of_the_main_path_say_who_sampled(sampled: Sampled, call: dict[str, Any]) -> None:
    run = (await sampled.rows.members(await sampled.group(1.0)))[0]
    await sampled.rows.call(run, version_id=sampled.base, **call)
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 1


async def test_each_choice_of_a_first_call_that_was_not_continued_counts(sampled: Sampled) -> None:
    """A sibling has no call of its own: the call of which it is another choice is its main path."""
    of: dict[str, Any] = {"alias_id": sampled.alias_id, "version_id": sampled.first, "state": "completed"}
    of["answered"] = False
    group_id = await sampled.rows.group(state="ready", alias_id=sampled.alias_id)
    first = await sampled.rows.trajectory(group_id, **of)
    call = await sampled.rows.call(first, version_id=sampled.first, sampled=3)
    await sampled.rows.set(trajectories, first, leaf_call_id=call, leaf_choice=0)
    for choice in (1, 2):
        await sampled.rows.trajectory(group_id, leaf_call_id=call, leaf_choice=choice, forked_from_call=call, **of)
    await sampled.judge(group_id, (0.0, 0.3, 0.9))
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 3
    assert found.mean == pytest.approx(0.4)


async def test_a_trajectory_that_nobody_answered_counts_for_no_version(sampled: Sampled) -> None:
    run = {"alias_id": sampled.alias_id, "version_id": sampled.first, "state": "completed"}
    group_id = await sampled.rows.group(state="ready", alias_id=sampled.alias_id, version_id=sampled.first)
    await sampled.rows.call(await sampled.rows.trajectory(group_id, answered=False, **run), sampled=0, state="errored")
    await sampled.judge(group_id, (0.0,))
    assert await sampled.reward() is None


async def test_the_newest_trajectories_count(sampled: Sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "NEWEST", 3)
    await sampled.group(0.0, 0.0, 0.0)
    await sampled.group(0.5, 0.5)
    await sampled.group(1.0, purpose="eval")
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 3
    assert found.mean == pytest.approx(1 / 3)


async def test_a_ranking_makes_the_figure_relative_to_its_groups(sampled: Sampled) -> None:
    await sampled.group(0.25, 0.75)
    found = await sampled.reward()
    assert found is not None
    assert not found.relative
    await sampled.group(0.0, 1.0, ranked=True)
    found = await sampled.reward()
    assert found is not None
    assert found.relative


async def test_the_interval_is_by_group(sampled: Sampled) -> None:
    await sampled.group(1.0, 1.0, 1.0, 1.0)
    await sampled.group(0.0, 0.0, 0.0, 0.0)
    two = await sampled.reward()
    assert two is not None
    assert two.interval is not None
    assert (two.interval.low, two.interval.high) == (0.0, 1.0)  # two groups say next to nothing
    for _ in range(4):
        await sampled.group(1.0, 1.0, 1.0, 1.0)
        await sampled.group(0.0, 0.0, 0.0, 0.0)
    ten = await sampled.reward()
    assert ten is not None
    assert ten.interval is not None
    # ten independent observations with deviation sqrt(10 / 9) / 2, Student's t of 9 degrees; 40 would give ± 0.16
    assert ten.interval.high - ten.mean == pytest.approx(2.262 * 0.5 * (10 / 9) ** 0.5 / 10**0.5, rel=1e-3)


async def test_one_group_has_no_interval(sampled: Sampled) -> None:
    await sampled.group(0.0, 1.0)
    found = await sampled.reward()
    assert found is not None
    assert found.interval is None


async def test_rewards_outside_0_to_1_are_averaged_and_not_cut(sampled: Sampled) -> None:
    for value in (4.0, 5.0, -3.0):
        await sampled.group(value, value)
    found = await sampled.reward()
    assert found is not None
    assert found.interval is not None
    assert found.mean == 2.0
    assert found.interval.low < 0
    assert found.interval.high > 5


async def test_a_reward_of_0_is_a_figure(sampled: Sampled) -> None:
    for _ in range(3):
        await sampled.group(0.0, 0.0)
    found = await sampled.reward()
    assert found is not None
    assert found.interval is not None
    assert found.mean == 0.0
    assert 0.0 == found.interval.low < found.interval.high < 1.0  # three groups alike do not say that all are


async def test_versions_have_their_own_figures_in_one_read(sampled: Sampled) -> None:
    await sampled.group(0.25, 0.25)
    await sampled.group(0.5, by=sampled.base)
    async with sampled.rows.store.read() as conn:
        found = await load_rewards(conn, [sampled.base, sampled.first, "ver_unknown"])
    assert {one.version: one.mean for one in found.values()} == {"helpdesk@0": 0.5, "helpdesk@1": 0.25}
    assert found.keys() == {sampled.base, sampled.first}


async def test_a_missing_reward_is_not_0(sampled: Sampled) -> None:
    group_id = await sampled.group(0.8, 0.6)
    run = (await sampled.rows.members(group_id))[0]
    async with sampled.rows.store.write() as conn:
        await conn.execute(update(score_parts).where(score_parts.c.trajectory_id == run).values(value=None))
    found = await sampled.reward()
    assert found is not None
    assert found.trajectories == 1
    assert found.mean == pytest.approx(0.6)
