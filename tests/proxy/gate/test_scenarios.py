"""A version held to scenarios: what its attempts and the live version's decide, and what becomes of it without them.

A scripted engine, a real store, and a learner of this file's that attempts nothing and says who succeeded. The real
one: tests/trainer/runtime/test_examiner.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.gate.behaviour import pair_value
from proxy.settings.sections import AliasSettings, GateSettings
from recorder.queue import attempts, campaigns, gate_requests, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import NewScenario
from recorder.queue.gate_requests import GateArm, GatePair, GateRequest
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView, get_version
from recorder.states import CampaignState, Purpose, VersionState
from recorder.store.changes import Topic
from recorder.store.database import Project
from tests.proxy.controlled import World, served
from tests.recorder.queue.bindings import bind_group

pytestmark = pytest.mark.slow

HELD_OUT = {"scenarios": Path("held-out.jsonl"), "agent": "my_agent:run", "success": "my_agent:solved"}
TASKS = 8  # a round


def policy(**gate: Any) -> AliasSettings:
    return AliasSettings(base_model="base", gate=GateSettings.model_validate(HELD_OUT | gate))


async def attempted(world: World, wish: GateRequest, number: int, candidate: float, live: float) -> None:
    """A round in which every attempt of a side came to the same."""
    row = wish.row
    await campaigns.add_scenarios(world.store, row.id, "val", [NewScenario(f"s{n}", n) for n in range(TASKS)])
    worth = {}
    for scenario in await campaigns.list_scenarios(world.store, row.id, "val"):
        for side, won in ((GateArm.CANDIDATE, candidate), (GateArm.LIVE, live)):
            group = f"{row.id}.{number}.{scenario.external_id}.{side}"
            await bind_group(Project(world.store, "default"), group, row.id, scenario.id, 1, row.alias_id)
            new = NewAttempt(scenario.id, number, Purpose.EVAL, side, group, "0")
            await attempts.new_attempts(world.store, row.id, [new])
            worth[group] = won
    await gate_requests.write_round(world.store, row.id, number, worth)


@asynccontextmanager
async def learning(
    world: World, candidate: float, live: float, *, rounds: int = 8, then: CampaignState = CampaignState.FINISHED
) -> AsyncIterator[list[str]]:
    """A learner that answers wishes; those that it met."""
    met: list[str] = []

    async def learn() -> None:
        alias = await world.alias()
        with world.store.watch.on(Topic.CAMPAIGNS) as news:
            while True:
                await news.wait()
                while wish := await gate_requests.next_request(world.store, alias.id):
                    met.append(wish.row.id)
                    for number in range(wish.row.steps_done + 1, rounds + 1):
                        await attempted(world, wish, number, candidate, live)
                    await gate_requests.end_request(world.store, wish.row.id, then, "no module named my_agent")

    task = asyncio.create_task(learn())
    try:
        yield met
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def parent_of(world: World, version: VersionView) -> VersionView:
    return await get_version(world.store, version.parent_id or "")


async def gated(world: World) -> tuple[str | None, dict[str, Any]]:
    """Why the newest version passed, and its figures."""
    row = next(move for move in await list_moves(Project(world.store, "default")) if move.move == "gated")
    return row.why, dict(row.figures)


@given(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0]))
def test_a_pair_is_won_by_the_side_that_alone_succeeded(candidate: float, live: float) -> None:
    assert pair_value(GatePair(candidate, live)) == {1: 1.0, 0: 0.5, -1: 0.0}[round(candidate - live)]
    assert pair_value(GatePair(candidate, live)) == 1 - pair_value(GatePair(live, candidate))


@pytest.mark.parametrize("missing", ["scenarios", "agent", "success"])
def test_half_of_what_scenarios_take_is_refused(missing: str) -> None:
    with pytest.raises(ValidationError, match=rf"without gate\.{missing}:"):
        GateSettings.model_validate({name: given for name, given in HELD_OUT.items() if name != missing})


def test_a_judges_part_is_no_success_of_a_gate() -> None:
    with pytest.raises(ValidationError, match="is not a `module:function`"):
        GateSettings.model_validate(HELD_OUT | {"success": "reward"})


async def test_a_version_that_succeeds_less_is_rejected_and_no_judge_was_asked(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy()) as world, learning(world, candidate=0.0, live=1.0):
        version = await world.becomes(await world.write(), VersionState.REJECTED)
        assert (version.reason or "").startswith("behaviour: it wins 0% of ")
        assert served(world) == "helpdesk@0"
        wish = await gate_requests.find_request(world.store, version, await parent_of(world, version))
        assert wish is not None
        assert (await gate_requests.gate_result(world.store, wish)).state is CampaignState.FINISHED


@pytest.mark.parametrize(("candidate", "live", "win_rate"), [(1.0, 0.0, 1.0), (1.0, 1.0, 0.5), (0.0, 0.0, 0.5)])
async def test_a_version_that_is_not_shown_worse_goes_live_with_its_figures(
    make_world: Callable[..., Any], candidate: float, live: float, win_rate: float
) -> None:
    async with make_world(policy()) as world, learning(world, candidate, live):
        await world.live()
        why, figures = await gated(world)
        assert why == "nothing_recorded"  # no agent asked anything: there is no answer whose form could be bad
        assert (figures["win_rate"], figures["success"], figures["success_live"]) == (win_rate, candidate, live)


async def test_too_few_pairs_to_decide_pass(make_world: Callable[..., Any]) -> None:
    async with make_world(policy()) as world, learning(world, candidate=1.0, live=1.0, rounds=1):
        await world.live()
        assert (await gated(world))[1]["pairs"] == TASKS


async def test_what_could_not_be_attempted_does_not_decide_and_the_row_says_why(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy()) as world, learning(world, 0.0, 0.0, rounds=0, then=CampaignState.FAILED):
        await world.live()
        why = "nothing_recorded: its scenarios could not be attempted: no module named my_agent"
        assert (await gated(world))[0] == why


@pytest.mark.parametrize("trainer", [False, True])
async def test_where_nobody_attempts_them_in_time_sanity_decides_and_the_row_says_so(
    make_world: Callable[..., Any], trainer: bool
) -> None:
    async with make_world(policy(timeout_s=0.2)) as world:
        if trainer:
            await leases.acquire_lease(Project(world.store, "default"), leases.trainer_lease("helpdesk"), "trainer", 60)
        version = await world.live()
        late = "nothing_recorded: the pairs were not all answered and judged within 0.2 s (gate.timeout_s): "
        measured = "0 pairs of attempts were measured"
        assert (await gated(world))[0] == late + measured + (
            "" if trainer else ", and no learner is running (`hone learn`)"
        )
        assert await gate_requests.next_request(world.store, version.alias_id) is None


async def test_a_version_of_an_alias_that_promotes_at_once_is_held_to_no_scenario(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy().model_copy(update={"promote": "auto"})) as world:
        version = await world.live()
        assert await gate_requests.find_request(world.store, version, await parent_of(world, version)) is None


async def test_the_next_controller_takes_up_the_same_wish(make_world: Callable[..., Any]) -> None:
    async with make_world(policy()) as first:
        version = await first.becomes(await first.write(), VersionState.LOADED)
        alias = await first.alias()
        with first.store.watch.on(Topic.CAMPAIGNS) as news:
            while (wish := await gate_requests.next_request(first.store, alias.id)) is None:
                await news.wait()
        await attempted(first, wish, 1, candidate=1.0, live=1.0)
    async with make_world(policy()) as second, learning(second, candidate=1.0, live=1.0, rounds=2) as met:
        await second.becomes(version, VersionState.LIVE)
        assert met == [wish.row.id]
        assert (await gated(second))[1]["pairs"] == 2 * TASKS
