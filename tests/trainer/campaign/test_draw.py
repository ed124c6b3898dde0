"""What a step draws: uniformly as ever, or by chances; what replaces equal groups; and what a killed campaign draws."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from recorder.queue import campaigns, draws
from recorder.queue.campaigns import Scenario
from recorder.queue.draws import Draw, DrawReason, GroupOutcome
from recorder.store.database import Project
from recorder.store.schema import attempts, scenarios
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, write_user_folder
from trainer.campaign.draw import draw_refill, draw_step
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError
from trainer.tasks.selection import draw_scenarios

shares = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


def tasks(ordinary: int, adversarial: int = 0) -> list[Scenario]:
    return [
        Scenario(f"s{n}", "c", f"s{n}", "train", n, None, None, n >= ordinary) for n in range(ordinary + adversarial)
    ]


def settings(**given: Any) -> CampaignSettings:
    return CampaignSettings.model_validate({"choose": "learnability", "group_size": 4, "seed": 3} | given)


def equal(scenario: str, step: int, reward: float = 1.0) -> GroupOutcome:
    return GroupOutcome(scenario, step, [reward] * 4)


def differing(scenario: str, step: int) -> GroupOutcome:
    return GroupOutcome(scenario, step, [0.0, 1.0] * 2)


def ids(drawn: Sequence[Draw]) -> list[str]:
    return [one.scenario_id for one in drawn]


# --- what begins a step


@given(st.integers(1, 30), st.integers(0, 10), st.integers(1, 12), st.integers(1, 40), shares, shares)
def test_a_step_has_different_scenarios_as_many_of_each_kind_as_if_drawn_uniformly(
    ordinary: int, adversarial: int, per_step: int, step: int, adversarial_share: float, explore: float
) -> None:
    train = tasks(ordinary, adversarial)
    share = min(adversarial_share, 0.99)
    given = settings(scenarios_per_step=per_step, adversarial_share=share, explore_share=explore)
    drawn = draw_step(train, given, step, [])
    uniform = draw_scenarios(train, per_step, step, 3, share)
    assert len(set(ids(drawn))) == len(drawn) == len(uniform)
    kinds = [train[int(id_[1:])].adversarial for id_ in ids(drawn)]
    assert kinds == [one.adversarial for one in uniform]
    assert drawn == draw_step(train, given, step, [])
    assert [one.place for one in drawn] == list(range(len(drawn)))
    assert {one.refill for one in drawn} == {0}


@given(st.integers(1, 60), shares)
def test_a_share_of_all_steps_is_explored_to_less_than_one_scenario(steps: int, explore: float) -> None:
    given = settings(scenarios_per_step=8, explore_share=explore)
    drawn = [one for step in range(1, steps + 1) for one in draw_step(tasks(20), given, step, [])]
    reasons = Counter(one.reason for one in drawn)
    assert reasons.keys() <= {DrawReason.CHOSEN, DrawReason.EXPLORED}
    assert abs(reasons[DrawReason.EXPLORED] - explore * 8 * steps) < 1


def test_scenarios_that_taught_nothing_are_drawn_less_than_those_that_did_and_unseen_ones_in_between() -> None:
    outcomes = [equal(f"s{n}", 1) for n in range(4)] + [differing(f"s{n}", 1) for n in range(4, 8)]
    times = Counter(
        id_
        for seed in range(300)
        for id_ in ids(draw_step(tasks(12), settings(scenarios_per_step=4, seed=seed), 2, outcomes))
    )
    solved, teaching, unseen = (sum(times[f"s{n}"] for n in of) for of in (range(4), range(4, 8), range(8, 12)))
    assert solved < unseen / 2
    assert unseen < teaching


def test_an_explored_one_is_any_that_was_not_chosen() -> None:
    outcomes = [equal("s0", 1)] + [differing(f"s{n}", 1) for n in range(1, 12)]
    drawn = [
        one
        for seed in range(60)
        for one in draw_step(tasks(12), settings(scenarios_per_step=2, explore_share=0.5, seed=seed), 2, outcomes)
    ]
    explored = Counter(one.scenario_id for one in drawn if one.reason is DrawReason.EXPLORED)
    assert sum(explored.values()) == 60
    assert explored["s0"] > 0
    assert len(explored) == 12


def test_the_estimates_and_the_seed_are_told() -> None:
    (one,) = draw_step(tasks(1), settings(), 2, [differing("s0", 1)])
    assert (one.step_number, one.reward, one.seed) == (2, 0.5, "3:2:0")
    assert one.differ == pytest.approx(1 - 2 * (3 * 4 * 5 * 6) / (6 * 7 * 8 * 9))


# --- what replaces equal groups


@given(
    st.integers(1, 20), st.integers(0, 8), st.integers(1, 8), st.integers(1, 20), shares,
    st.sets(st.integers(0, 27)), st.sampled_from(["uniform", "learnability"]),
)  # fmt: skip
def test_equal_groups_are_replaced_by_others_of_their_kind_up_to_the_share(
    ordinary: int, adversarial: int, per_step: int, step: int, share: float, solved: set[int], choose: str
) -> None:
    train = tasks(ordinary, adversarial)
    given = settings(scenarios_per_step=per_step, adversarial_share=0.3, refill=share, choose=choose)
    drawn = draw_step(train, given, step, [])
    begun = len(drawn)
    outcomes: list[GroupOutcome] = []
    while True:
        new = drawn if not outcomes else draw_refill(train, given, drawn, outcomes)
        if outcomes and not new:
            break
        if outcomes:
            was = [one for one in drawn if one.refill == drawn[-1].refill and int(one.scenario_id[1:]) in solved]
            assert {one.refill for one in new} == {drawn[-1].refill + 1}
            assert len(new) <= len(was)
            for kind in (False, True):
                of_kind = [sum(train[int(id_[1:])].adversarial is kind for id_ in ids(some)) for some in (new, was)]
                assert of_kind[0] <= of_kind[1]
            drawn = [*drawn, *new]
        of = [int(one.scenario_id[1:]) for one in new]
        outcomes += [equal(f"s{n}", step) if n in solved else differing(f"s{n}", step) for n in of]
    assert len(set(ids(drawn))) == len(drawn)
    assert [one.place for one in drawn] == list(range(len(drawn)))
    assert len(drawn) - begun < share * begun + 1
    assert draw_refill(train, given, drawn, outcomes) == []


def test_over_the_steps_the_refills_are_the_share_of_what_is_begun() -> None:
    train, given = tasks(100), settings(scenarios_per_step=2, refill=0.25)
    refills = 0
    for step in range(1, 9):
        drawn = draw_step(train, given, step, [])
        refills += len(draw_refill(train, given, drawn, [equal(id_, step) for id_ in ids(drawn)]))
    assert refills == 0.25 * 2 * 8


def test_what_has_no_two_rewards_or_differs_is_not_replaced() -> None:
    given = settings(scenarios_per_step=2, refill=1)
    drawn = draw_step(tasks(9), given, 1, [])
    outcomes = [GroupOutcome(ids(drawn)[0], 1, [1.0]), differing(ids(drawn)[1], 1)]
    assert draw_refill(tasks(9), given, drawn, outcomes) == []
    assert draw_refill(tasks(9), given, [], outcomes) == []


# --- whole campaigns


async def attempted(ring: Ring) -> dict[int, set[str]]:
    """The scenarios of each step's training attempts, by their ids."""
    query = select(attempts.c.step_number, scenarios.c.external_id).join(
        scenarios, scenarios.c.id == attempts.c.scenario_id
    )
    found: dict[int, set[str]] = {}
    async with ring.store.read() as conn:
        for step, id_ in await conn.execute(query.where(attempts.c.purpose == "train")):
            found.setdefault(step, set()).add(id_)
    return found


async def written(ring: Ring) -> list[tuple[int, int, str, str]]:
    """Step, refill, reason and scenario of all that was drawn."""
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    names = {
        one.id: one.external_id
        for split in ("train", "val", "test")
        for one in await campaigns.list_scenarios(ring.store, campaign.id, split)
    }
    return [
        (one.step_number, one.refill, str(one.reason), names[one.scenario_id])
        for one in await draws.list_draws(ring.store, campaign.id)
    ]


@pytest.fixture
def many(tmp_path: Path) -> dict[str, Any]:
    """A campaign over twelve scenarios, two a step: half of them are always solved."""
    return write_user_folder(tmp_path / "many", train=12) | {"seed": 5}


@pytest.fixture
async def script() -> Script:
    return Script(skill=lambda number: 0.5, at={f"train {n}": 1.0 for n in range(6)})


@pytest.mark.slow
async def test_a_uniform_campaign_draws_as_ever_and_writes_nothing_down(
    ring: Ring, many: dict[str, Any], told: RecordedProgress
) -> None:
    await ring.train(many | {"val_scenarios": None}, told)
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    train = await campaigns.list_scenarios(ring.store, campaign.id, "train")
    assert await attempted(ring) == {
        step: {one.external_id for one in draw_scenarios(train, 2, step, 5, 0.1)} for step in (1, 2, 3)
    }
    assert await draws.list_draws(ring.store, campaign.id) == []


@pytest.mark.slow
async def test_a_choosing_campaign_attempts_what_it_wrote_down_and_never_what_is_held_out(
    ring: Ring, many: dict[str, Any], told: RecordedProgress
) -> None:
    chosen = {"choose": "learnability", "explore_share": 0.25, "refill": 0.5, "steps": 4}
    await ring.train(many | chosen, told)
    drawn = await written(ring)
    assert await attempted(ring) == {step: {name for at, _, _, name in drawn if at == step} for step in range(1, 5)}
    assert {name.partition("-")[0] for *_, name in drawn} == {"train"}
    reasons = Counter(reason for _, refill, reason, _ in drawn if not refill)
    assert reasons == {"chosen": 6, "explored": 2}
    refills = [(step, reason) for step, refill, reason, _ in drawn if refill]
    assert {reason for _, reason in refills} <= {"refill"}
    assert [step.attempts for step in told.steps()] == [
        8 + 4 * sum(at == step for at, _ in refills) for step in range(1, 5)
    ]


@pytest.mark.slow
async def test_a_group_of_equal_rewards_is_replaced_within_its_step(
    ring: Ring, many: dict[str, Any], told: RecordedProgress
) -> None:
    ring.script.at = {f"train {n}": 1.0 for n in range(11)}  # one of twelve teaches
    await ring.train(many | {"refill": 1.0, "steps": 1, "val_scenarios": None}, told)
    drawn = await written(ring)
    assert [(refill, reason) for _, refill, reason, _ in drawn][:2] == [(0, "uniform")] * 2
    solved = [name != "train-11" for *_, name in drawn]
    assert len(drawn) == 4 or not all(solved)
    (step,) = told.steps()
    assert step.attempts == 4 * len(drawn) == len(ring.calls)
    assert set(step.seconds) == {"sampling", "judging", "training", "swapping"}


@pytest.mark.slow
@pytest.mark.parametrize("calls", [9, *(pytest.param(other, marks=pytest.mark.long) for other in (3, 14))])
async def test_a_campaign_that_is_killed_and_resumed_draws_the_same(
    tmp_path: Path, ring: Ring, script: Script, many: dict[str, Any], calls: int
) -> None:
    """Killed in the first round of a step, in its refill, or in the next step; beside one that nobody kills."""
    given = many | {"choose": "learnability", "refill": 1.0, "steps": 3, "val_scenarios": None}
    script.at = {f"train {n}": 1.0 for n in range(12) if n % 3}
    script.hold, script.hold_after = asyncio.Event(), calls
    running = asyncio.create_task(ring.train(given, RecordedProgress()))
    await ring.reached_hold.wait()
    before = await written(ring)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    script.hold.set()
    script.hold_after = 10**9
    told = RecordedProgress()
    await ring.train(given, told)
    killed = await written(ring)
    assert killed[: len(before)] == before
    data = tmp_path / "calm"
    async with Ring.running(data, Script(skill=script.skill, at=script.at)) as calm:
        undisturbed = RecordedProgress()
        await calm.train(given, undisturbed)
        assert killed == await written(calm)
        assert await attempted(ring) == await attempted(calm)
    assert [(one.attempts, one.reward, one.scenarios) for one in told.steps()] == [
        (one.attempts, one.reward, one.scenarios) for one in undisturbed.steps()
    ]


@pytest.mark.slow
async def test_an_unfinished_campaign_keeps_how_it_draws(
    ring: Ring, script: Script, many: dict[str, Any], told: RecordedProgress
) -> None:
    script.reject = set(range(99))
    with pytest.raises(CampaignError, match="gave up"):
        await ring.train(many | {"max_rejected": 1, "name": "mine"}, told)
    with pytest.raises(CampaignError, match="choose uniform → learnability"):
        await ring.train(many | {"name": "mine", "choose": "learnability"}, told)
