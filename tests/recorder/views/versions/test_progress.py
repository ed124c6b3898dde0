"""What an alias has learned: its newest versions with their measures, and one task before and after."""

from __future__ import annotations

import pytest

from recorder.registry import alias_moves, versions
from recorder.registry.aliases import get_aliases
from recorder.registry.versions import get_versions
from recorder.store.database import Project
from recorder.views.versions import progress
from recorder.views.versions.progress import AliasProgress, load_progress
from recorder.views.versions.rewards import load_rewards
from tests.recorder.learning import FIGURES, Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def of_alias(learned: Learned) -> AliasProgress:
    project = Project(learned.store, PROJECT)
    known = await get_versions(project)
    async with learned.store.read() as conn:
        rewards = await load_rewards(conn, [one.id for one in known])
    [found] = await load_progress(project, await get_aliases(project), known, list(rewards.values()))
    return found


async def test_each_version_has_its_measures_oldest_first(learned: Learned) -> None:
    first = await learned.accepted(1, {"kl_live": 0.01})
    spoilt = await learned.step(2)
    await versions.reject_version(learned.store, spoilt.id, "kl: too far", lessons="left_out", who="controller")
    await learned.accepted(3)
    campaign = await learned.campaign()
    await learned.validated(campaign, 1, first.name, 0.25, 96)
    found = await of_alias(learned)
    told = [(v.version, v.in_line, v.held_out and v.held_out.value, v.gate and v.gate.value) for v in found.versions]
    assert told == [
        ("helpdesk@0", True, None, None),
        ("helpdesk@1", True, 0.25, None),
        ("helpdesk@2", False, None, None),
        ("helpdesk@3", True, FIGURES["success"], FIGURES["win_rate"]),
    ]
    rewarded = [v.reward and v.reward.version for v in found.versions]
    assert rewarded == ["helpdesk@0", "helpdesk@1", None, None]


async def test_the_number_of_versions_is_bounded(learned: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN", 2)
    for number in (1, 2, 3):
        await learned.accepted(number)
    assert [one.version for one in (await of_alias(learned)).versions] == ["helpdesk@2", "helpdesk@3"]


async def test_the_pair_is_the_task_that_changed_most_from_the_parent_to_the_live_version(learned: Learned) -> None:
    await learned.group(10, implicit_key="little")
    await learned.set_rewards(10, 0.5, 0.5)
    await learned.group(11, implicit_key="much")
    await learned.set_rewards(11, 0.1, 0.1)
    await learned.accepted(1)
    assert (await of_alias(learned)).pair is None  # nothing is judged for both
    await learned.group(12, implicit_key="little")
    await learned.set_rewards(12, 0.6, 0.6)
    await learned.group(13, implicit_key="much")
    await learned.set_rewards(13, 0.9, 0.9)
    pair = (await of_alias(learned)).pair
    assert pair is not None
    assert (pair.before, pair.after, pair.key) == ("helpdesk@0", "helpdesk@1", "much")
    assert [pair.reward_before, pair.reward_after] == pytest.approx([0.1, 0.9])
    await alias_moves.rollback(learned.store, learned.alias_id, who="anna", reason="worse")
    assert (await of_alias(learned)).pair is None  # the base has no parent
