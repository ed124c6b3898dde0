"""The gate beside earlier versions: small losses add up, and the version of a day ago shows it.

Against a scripted engine and a real store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from proxy.gate.earlier import find_earlier
from proxy.settings.sections import AliasSettings, GateSettings
from recorder.queue.campaigns import get_campaign
from recorder.registry.kept_versions import DAY_S, WEEK_S
from recorder.registry.moves import VersionMove, list_moves
from recorder.registry.versions import VersionView, get_version, get_versions
from recorder.states import VersionState
from recorder.store.database import Project
from recorder.store.schema import versions as version_rows
from recorder.views.lists.groups import list_groups
from recorder.views.trajectories.transcripts import load_groups
from tests.proxy.controlled import World, served
from tests.proxy.gate.test_examination import by_words, judging, recorded
from tests.proxy.gate.test_scenarios import HELD_OUT, learning
from tests.proxy.scripted_engine import Speech
from tests.proxy.until import until
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


def policy(**gate: Any) -> AliasSettings:
    return AliasSettings(base_model="base", gate=GateSettings.model_validate({"earlier": ["day", "week"]} | gate))


async def aged(world: World, version: VersionView, days: float) -> None:
    """As if a version had been made so many days ago."""
    at = version.created_at - days * DAY_S
    await Rows(world.store).set(version_rows, version.id, created_at=at)


async def three_versions(world: World, *days: float) -> list[VersionView]:
    """Three versions that were live one after another; the first ones so many days old."""
    made = [await world.live() for _ in range(3)]
    for version, age in zip(made, days, strict=False):
        await aged(world, version, age)
    return made


async def decision(world: World, move: str) -> VersionMove:
    """The newest such decision."""
    return next(one for one in await list_moves(Project(world.store, "default")) if one.move == move)


async def test_a_version_as_good_as_the_live_one_and_worse_than_that_of_a_day_ago_is_rejected(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy(max_samples=16)) as world:
        first, _, live = await three_versions(world, 2.0)
        await recorded(world)
        world.engine.speech = {"helpdesk@1": Speech(content="Good.")}
        async with judging(world, by_words):
            version = await world.becomes(await world.write(), VersionState.REJECTED)
        said = f"behaviour_day: it wins 0% of 16 pairs beside {first.name}, which is at least a day old, below 40%"
        assert (version.reason or "").startswith(said)
        figures = (await decision(world, "rejected")).figures
        assert (figures["version_day"], figures["pairs_day"], figures["win_rate_day"]) == (1, 16, 0.0)
        assert (figures["pairs"], figures["win_rate"]) == (16, 0.5), "the live version is no better than it"
        assert "pairs_week" not in figures
        assert served(world) == live.name
        await until(lambda: first.engine_name in world.engine.unloads())
        assert await answers_of(world, first) == {"Good."}


async def answers_of(world: World, version: VersionView) -> set[str]:
    """What the gate's answers of a version say."""
    lines = (await list_groups(Project(world.store, "default"), limit=200)).lines
    groups = await load_groups(world.store, [line.id for line in lines if line.declared_size == 2])
    members = [member for group in groups for member in group.members if member.version_id == version.id]
    return {str(member.messages[-1]["content"]) for member in members}


async def test_a_version_that_is_not_shown_worse_than_earlier_ones_goes_live_with_figures_of_each(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy(max_samples=4)) as world:
        await three_versions(world, 8.0, 2.0)
        await recorded(world, 4)
        async with judging(world, by_words):
            version = await world.live()
        gated = await decision(world, "gated")
        assert "beside" not in (gated.why or "")
        of_days = {name: gated.figures[name] for name in ("version_day", "version_week", "pairs_day", "pairs_week")}
        assert of_days == {"version_day": 2, "version_week": 1, "pairs_day": 4, "pairs_week": 4}
        await until(lambda: "helpdesk@1" not in {name.rpartition("-")[0] for name in world.engine.adapters})
        assert served(world) == version.name


async def test_without_the_setting_no_earlier_version_is_asked(make_world: Callable[..., Any]) -> None:
    async with make_world(policy(earlier=[], max_samples=4)) as world:
        first, *_ = await three_versions(world, 8.0, 2.0)
        await recorded(world, 4)
        before = len(world.engine.calls)
        async with judging(world, by_words):
            await world.live()
        assert first.engine_name not in {name for _, name in world.engine.calls[before:]}
        assert not [name for name in (await decision(world, "gated")).figures if name.endswith(("_day", "_week"))]


async def test_a_version_of_a_day_ago_displaces_nothing_that_serves(make_world: Callable[..., Any]) -> None:
    async with make_world(policy(max_samples=4), max_loras=2) as world:
        first, *_ = await three_versions(world, 2.0)
        await recorded(world, 4)
        loads = len(world.engine.loads())
        async with judging(world, by_words):
            await world.live()
        assert first.engine_name not in world.engine.loads()[loads:]
        why = (await decision(world, "gated")).why or ""
        assert why.endswith(
            ": beside helpdesk@1, which is at least a day old: the engines have no free slot for helpdesk@1 "
            "(engine.max_loras)"
        )


async def test_an_earlier_version_that_an_engine_refuses_does_not_decide_and_the_row_says_so(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy(max_samples=4)) as world:
        first, *_ = await three_versions(world, 2.0)
        await recorded(world, 4)
        await until(lambda: first.engine_name in world.engine.unloads())
        shutil.rmtree(first.path or "")
        async with judging(world, by_words):
            await world.live()
        why = (await decision(world, "gated")).why or ""
        assert f"does not hold {first.name}: the engine {world.engine.url} does not see" in why


async def test_an_alias_whose_first_version_is_of_today_is_compared_with_the_base(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(policy(max_samples=4), max_loras=2) as world:
        await world.live()
        base = next(one for one in await get_versions(Project(world.store, "default")) if one.number == 0)
        await aged(world, base, 8.0)
        await recorded(world, 4)
        async with judging(world, by_words):
            await world.live()
        figures = (await decision(world, "gated")).figures
        assert (figures["version_day"], figures["pairs_day"]) == (0, 4)
        assert "version_week" not in figures, "the base stands for both ages, and is compared once"


async def test_held_out_scenarios_are_attempted_beside_each_version(make_world: Callable[..., Any]) -> None:
    async with make_world(policy(**HELD_OUT)) as world:
        first, _, live = await three_versions_of_scenarios(world)
        async with learning(world, candidate=1.0, live=0.0) as met:
            await world.live()
        besides = [(await get_campaign(world.store, id_)).settings["beside"] for id_ in met]
        assert besides == [live.name, first.name]
        figures = (await decision(world, "gated")).figures
        assert (figures["success"], figures["success_live"]) == (1.0, 0.0)
        assert (figures["success_beside_day"], figures["success_day"], figures["win_rate_day"]) == (1.0, 0.0, 1.0)


async def three_versions_of_scenarios(world: World) -> list[VersionView]:
    async with learning(world, candidate=1.0, live=0.0):
        return await three_versions(world, 2.0)


async def test_which_versions_are_a_day_and_a_week_old(world: World) -> None:
    made = await three_versions(world, 20.0, 3.0)
    live = await get_version(world.store, made[-1].id)

    async def numbers(*ages: Any) -> dict[str, int]:
        return {age: one.number for age, one in (await find_earlier(world.store, live, ages)).items()}

    assert await numbers("week", "day") == {"day": 2, "week": 1}
    assert await numbers("week") == {"week": 1}
    await aged(world, live, 2.0)
    assert await numbers("week", "day") == {"week": 1}, (
        "the live version is a day old: the gate compares with it anyway"
    )
    await aged(world, live, 2 * WEEK_S / DAY_S)
    assert await numbers("week", "day") == {}
