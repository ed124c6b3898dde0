"""A trainer of several processes that loses one gives its groups back, and remembers what would have fitted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import trainer.ranks.launch
from recorder.queue.training import pass_budgets
from recorder.states import GroupState
from tests.trainer.ranks.faulty_worker import FAULT
from tests.trainer.ranks.groups import FAULTY
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.world import World
from trainer.errors import RankLost
from trainer.step.alias_trainer import AliasTrainer

pytestmark = pytest.mark.slow


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fault"
    monkeypatch.setenv(FAULT, str(path))
    monkeypatch.setattr(trainer.ranks.launch, "WORKER", FAULTY)
    return path


def rank_processes(trainer_: AliasTrainer) -> list[int]:
    assert trainer_._launcher is not None
    assert trainer_._launcher.started is not None
    return [one.pid for one in trainer_._launcher.started.processes]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def lose_a_process(world: World, fault: Path) -> None:
    group_id = await world.group("g1", [1.0, 0.0, 0.5])
    async with await world.trainer(processes=2, max_tries=1) as first:
        processes = rank_processes(first)
        fault.write_text("kill 1")
        with pytest.raises(RankLost):
            await first.train_once(await world.claim(first))
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        assert await codes(world, "group", group_id) == []
    assert not any(map(is_running, processes))
    assert folders(world) == folders(world, "checkpoints") == []


async def test_a_lost_process_costs_the_groups_no_try(world: World, fault: Path) -> None:
    await lose_a_process(world, fault)


@pytest.mark.long
async def test_after_a_lost_process_a_new_trainer_makes_the_step(world: World, fault: Path) -> None:
    await lose_a_process(world, fault)
    fault.unlink()
    async with await world.trainer(processes=2, max_tries=1) as second:
        processes = rank_processes(second)
        report = await second.train_once(await world.claim(second))
    assert report.version is not None
    assert report.metrics["logprob_gap_max"] <= 1e-5
    assert not any(map(is_running, processes))


@pytest.mark.long
async def test_where_a_share_of_the_base_leaves_no_room_the_next_trainer_begins_with_half_the_tokens(
    world: World, fault: Path
) -> None:
    """The rank cannot give the others its share any more, so the processes end."""
    group_id = await world.group("g1", [1.0, 0.0, 0.5, 0.2])
    changes = {"processes": 2, "shard_base": True, "token_budget": 256, "max_tries": 1}
    async with await world.trainer(**changes) as first:
        device = first._core.device_name
        fault.write_text("room 40")
        with pytest.raises(RankLost, match=r"did not fit into the memory.*at most \d+ tokens"):
            await first.train_once(await world.claim(first))
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        assert await codes(world, "group", group_id) == []
    assert "2 processes" in device
    assert "share of the base" in device
    stored = await pass_budgets.load_pass_budget(first._project, first._fingerprint, device, 256)
    assert stored < 256
    fault.unlink()
    async with await world.trainer(**changes) as second:
        assert second._core.pass_budget == stored
        assert (await second.train_once(await world.claim(second))).version is not None
