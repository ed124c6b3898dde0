"""What a version has forgotten: its answers to the drift set's first turns, beside those of its ancestors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.engine.replica import Replica
from proxy.gate.behaviour import BehaviourArms
from proxy.gate.drift_answers import ScoreFall, find_fall
from proxy.gate.examination import GateVerdict, examine_version
from proxy.settings.sections import GateSettings
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.registry.drift_scores import DriftScores, load_drift_scores, record_drift_scores
from recorder.registry.versions import VersionView, get_version
from recorder.settings import RecorderSettings
from recorder.states import Origin, Purpose
from recorder.store.database import Project
from recorder.store.schema import trajectories
from recorder.store.sql import now
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.groups import list_groups
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.trajectories.transcripts import list_members, load_groups
from tests.proxy.controlled import World
from tests.proxy.gate.test_examination import by_words, judging
from tests.proxy.scripted_engine import Speech
from tests.recorder.rows import Rows
from tests.recorder.talk import assistant, choice, request, turn, user

VALUES = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-2, 2), min_size=1)
MEMBERS = [f"m{n}" for n in range(16)]


def scores(values: dict[str, float]) -> DriftScores:
    return DriftScores("reward", values)


# --- the test


@given(VALUES, st.floats(0.01, 1))
def test_a_version_that_scores_as_before_has_forgotten_nothing(values: dict[str, float], most: float) -> None:
    better = {member: value + 0.5 for member, value in values.items()}
    assert find_fall(scores(values), {"a@1": scores(values)}, most) is None
    assert find_fall(scores(better), {"a@1": scores(values), "a@2": scores(values)}, most) is None


def test_the_largest_fall_is_found_on_the_tasks_that_both_answered() -> None:
    own = scores(dict.fromkeys(MEMBERS, 0.0))
    half, whole = scores(dict.fromkeys(MEMBERS, 0.9)), scores(dict.fromkeys([*MEMBERS[1:], "gone"], 1.0))
    assert find_fall(own, {"a@1": half, "a@2": whole}, 0.1) == ScoreFall("a@2", before=1.0, now=0.0, members=15)
    assert find_fall(own, {"a@2": scores({"gone": 1.0})}, 0.1) is None


def test_a_fall_that_is_allowed_or_of_few_tasks_is_not_shown() -> None:
    own, before = scores(dict.fromkeys(MEMBERS, 0.5)), scores(dict.fromkeys(MEMBERS, 0.6))
    assert find_fall(own, {"a@1": before}, 0.2) is None
    few = MEMBERS[:3]
    assert find_fall(scores(dict.fromkeys(few, 0.0)), {"a@1": scores(dict.fromkeys(few, 1.0))}, 0.1) is None
    assert find_fall(scores(dict.fromkeys(MEMBERS, 0.0)), {"a@1": scores(dict.fromkeys(MEMBERS, 1.0))}, 3.0) is None


def test_each_ancestor_has_its_share_of_the_error_rate() -> None:
    few = MEMBERS[:8]
    own, before = scores(dict.fromkeys(few, 0.0)), scores(dict.fromkeys(few, 1.0))
    assert find_fall(own, {"a@1": before}, 0.1) is not None
    assert find_fall(own, {f"a@{n}": before for n in range(1, 9)}, 0.1) is None


def test_a_bound_without_answers_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"without gate\.forgetting_answers"):
        GateSettings(forgetting_max=0.1)


# --- asking and judging


async def members(world: World, count: int, *, scored: bool = False) -> list[str]:
    """Trajectories in the drift set, each beside another one of its task; `scored`: each by itself."""
    rows, alias = Rows(world.store), await world.alias()
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    drawn = []
    for n in range(count):
        asked = request([user(f"Where is order {n}?")])
        for side in "ab":
            address = Address(trajectory=f"run-{n}{side}", group=f"task-{n}", group_size=2, done=True)
            ref = await recorder.trajectory_at("default", alias.id, address, asked, alias.live_version_id)
            made = turn(
                ref, asked, [choice(assistant("On its way."))], address=address, alias_id=alias.id,
                version_id=alias.live_version_id, base_fingerprint=alias.base_fingerprint,
            )  # fmt: skip
            await recorder.commit(made)
        await rows.set(trajectories, ref.id, drift_set_at=now())
        drawn.append(ref.id)
        assert ref.group_id is not None
        if scored:
            await rows.score(ref.group_id, absolute=True)
    await recorder.stop()
    return drawn


async def examined(world: World, version: VersionView, **gate: float) -> GateVerdict:
    """What the gate finds of a version beside its parent."""
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    replica = Replica(world.engine.url, world.engine.key)
    parent = await get_version(world.store, version.parent_id or "")
    arms = BehaviourArms(world.store, recorder, replica, await world.alias(), version, parent)
    settings = GateSettings.model_validate({"max_samples": 2, "forgetting_answers": 16} | gate)
    async with judging(world, by_words):
        found = await examine_version(arms, "gate", settings)
    await recorder.stop()
    await replica.close()
    return found


@pytest.mark.slow
async def test_where_a_judge_only_compares_answers_are_judged_beside_the_recorded_ones(world: World) -> None:
    version = await world.live()
    drawn = await members(world, 3)
    world.engine.speech = {"helpdesk@1": Speech(content="Good.")}
    found = await examined(world, version)
    assert (found.passed, found.why) == (True, "")
    assert (found.figures["drift.score"], found.figures["drift.scored"]) == (1.0, 3)
    stored = await load_drift_scores(world.store, [version.id], "win")
    assert stored == {version.id: DriftScores("win", dict.fromkeys(drawn, 1.0))}
    metrics = (await get_version(world.store, version.id)).metrics
    assert (metrics["drift.score"], metrics["drift.scored"]) == (1.0, 3.0)
    shown = TrajectoryFilter(purpose=Purpose.EVAL)
    lines = (await list_trajectories(Project(world.store, "default"), shown, limit=200)).lines
    assert {line.origin for line in lines} == {Origin.SHADOW}


@pytest.mark.slow
async def test_where_rewards_hold_alone_each_answer_is_judged_alone(world: World) -> None:
    version = await world.live()
    drawn = await members(world, 3, scored=True)
    world.engine.speech = {"helpdesk@1": Speech(content="As good.")}
    found = await examined(world, version, forgetting_answers=2)
    assert (found.figures["drift.score"], found.figures["drift.scored"]) == (0.5, 2)
    assert (await load_drift_scores(world.store, [version.id], "reward"))[version.id].values == dict.fromkeys(
        drawn[:2], 0.5
    )
    lines = (await list_groups(Project(world.store, "default"), limit=100)).lines
    alone = await load_groups(world.store, [line.id for line in lines if line.declared_size == 1])
    assert [len(await list_members(world.store, group.id)) for group in alone] == [1, 1]


@pytest.mark.slow
async def test_a_version_that_scores_lower_than_an_ancestor_is_rejected_where_that_is_bounded(world: World) -> None:
    version = await world.live()
    drawn = await members(world, 8)
    world.engine.speech = {"helpdesk@1": Speech(content="Bad."), "base": Speech(content="Bad.")}
    await record_drift_scores(world.store, version.parent_id or "", DriftScores("win", dict.fromkeys(drawn, 1.0)))
    found = await examined(world, version)
    assert (found.passed, found.figures["drift.score"]) == (True, 0.0), "it is measured only"
    found = await examined(world, version, forgetting_max=0.1)
    assert (found.passed, found.code) == (False, "forgetting")
    assert found.why == (
        "it scores 0 on 8 tasks of the drift set, where helpdesk@0 scored 1; 0.1 lower is allowed (gate.forgetting_max)"
    )
    assert found.figures["drift.score_before"] == 1.0


@pytest.mark.slow
async def test_without_a_drift_set_nothing_is_measured_and_the_row_says_so(world: World) -> None:
    version = await world.live()
    await members(world, 2)
    async with world.store.write() as conn:
        await conn.execute(trajectories.update().values(drift_set_at=None))
    found = await examined(world, version)
    assert found.passed
    assert found.why == "there is no drift set yet (trainer.drift_trajectories)"
    assert "drift.score" not in found.figures
