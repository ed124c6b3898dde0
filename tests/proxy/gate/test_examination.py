"""Between a loaded version and its users: the policies, and what its answers to recorded openings decide.

Against a scripted engine and a real store. tests/e2e asks a real vLLM the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.gate import sanity
from proxy.settings.sections import AliasSettings, GateSettings
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.queue import campaigns
from recorder.queue.claims import claim_for_judging, waiting_for_training
from recorder.queue.judging.scores import NewPart, record_score
from recorder.queue.leases import JUDGE, keep_presence
from recorder.queue.training.steps import begin_step, finish_step
from recorder.registry.moves import list_moves
from recorder.registry.versions import allocate_version, get_versions
from recorder.settings import RecorderSettings
from recorder.states import GroupState, Origin, Purpose, TrajectoryState, VersionState
from recorder.store import ledger
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.groups import list_groups
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.trajectories.transcripts import load_group, load_trajectory
from recorder.views.versions.detail import version_detail
from recorder.views.versions.evidence import list_decisions
from tests.proxy.adapters import make_adapter
from tests.proxy.controlled import World, served
from tests.proxy.scripted_engine import Speech
from tests.recorder.score_rows import new_score
from tests.recorder.talk import assistant, choice, request, turn, user

pytestmark = pytest.mark.slow

ALONE = "sane: no judge is running to compare behaviour (`hone judge`)"


async def test_what_nobody_promotes_in_time_is_rejected(make_world: Callable[..., Any]) -> None:
    policy = AliasSettings(base_model="base", promote="manual", canary_max_age_s=0.001)
    async with make_world(policy) as world:
        version = await world.becomes(await world.write(), VersionState.REJECTED)
        assert (version.reason or "").startswith("not_promoted:")


async def test_a_version_of_a_campaign_passes_as_auto(make_world: Callable[..., Any]) -> None:
    async with make_world(AliasSettings(base_model="base", promote="manual")) as world:
        alias = await world.alias()
        assert alias.live_version_id is not None
        campaign = await campaigns.create_campaign(Project(world.store, "default"), alias.id, "spring", {})
        step = await begin_step(world.store, alias.id, alias.live_version_id, campaign.id)
        version = await allocate_version(world.store, alias.id, alias.live_version_id, step_id=step.id)
        made = make_adapter(world.folder, version.name)
        await finish_step(
            world.store,
            step.id,
            version_id=version.id,
            path=str(made.path),
            engine_name=made.engine_name,
            manifest_sha256=made.manifest_sha256,
            metrics={},
            checkpoint_path=None,
            groups=[],
        )
        await world.becomes(version, VersionState.LIVE)


# --- what its answers say


async def recorded(world: World, runs: int = 16) -> None:
    """Agents asked something, each something else."""
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    alias = await world.alias()
    for n in range(runs):
        asked = request([user(f"Where is order {n}?")])
        address = Address(trajectory=f"run-{n}", done=True)
        ref = await recorder.trajectory_at("default", alias.id, address, asked, alias.live_version_id)
        said = turn(ref, asked, [choice(assistant("On its way."))], address=address, alias_id=alias.id)
        await recorder.commit(said)
    await recorder.stop()


async def recorded_moves(world: World) -> list[tuple[str, str, str | None]]:
    return [(m.version, m.move, m.why) for m in await list_moves(Project(world.store, "default"))]


async def test_a_version_passes_on_its_answers_and_the_row_has_their_figures(world: World) -> None:
    await recorded(world)
    await world.live()
    assert await recorded_moves(world) == [("helpdesk@1", "gate", None), ("helpdesk@1", "gated", ALONE)]
    gated = (await list_decisions(Project(world.store, "default")))[1]
    figures = gated.figures
    assert gated.limits == {"length_times": 2.0, "entropy_times": 4.0, "win_at_least": 0.4}
    told = [one.text for one in gated.evidence]
    assert "Its answers are as long as the live version's; limit 2 ×, in either direction." in told
    assert f"Not everything was checked: {ALONE.removeprefix('sane: ')}." in told
    assert figures["gate_s"] > 0
    assert figures["times_as_long"] == pytest.approx(1.0)
    assert "kl_live" not in figures, "an engine may die of that question: it is asked where somebody bounds it"


async def test_how_far_a_version_is_from_the_live_one_is_asked_where_that_is_bounded(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(AliasSettings(base_model="base", gate=GateSettings(kl_max=2.0))) as world:
        await recorded(world)
        await world.live()
        gated = (await list_moves(Project(world.store, "default")))[1]
        assert (gated.figures["kl_live"], gated.limits["kl_max"]) == (pytest.approx(0.0), 2.0)


async def test_before_anybody_asked_anything_the_row_says_that_nothing_was(world: World) -> None:
    await world.live()
    assert (await recorded_moves(world))[1] == ("helpdesk@1", "gated", "nothing_recorded")


async def test_a_version_whose_answers_are_broken_never_serves_and_its_groups_are_left_out(world: World) -> None:
    await recorded(world)
    world.engine.speech = {"helpdesk@1": Speech(tokens=400)}
    version = await world.becomes(await world.write(), VersionState.REJECTED)
    assert (version.reason or "").startswith("length:")
    assert served(world) == "helpdesk@0"
    [row] = [e for e in await ledger.object_entries(world.store, "version", version.id) if e.code == "rejected"]
    assert row.detail is not None
    assert row.detail["lessons"] == "left_out"
    assert row.detail["figures"]["times_as_long"] == pytest.approx(10.0)
    world.engine.speech = {}
    await world.live()


async def test_answers_that_do_not_come_in_time_do_not_decide(make_world: Callable[..., Any]) -> None:
    policy = AliasSettings(base_model="base", gate=GateSettings(timeout_s=1e-6))
    async with make_world(policy) as world:
        await recorded(world)
        await world.live()
        [row] = [why for _, move, why in await recorded_moves(world) if move == "gated"]
        assert (row or "").startswith("not_asked_in_time:")


async def test_an_engine_that_breaks_off_while_it_is_asked_is_asked_again(world: World) -> None:
    await recorded(world)
    world.engine.chats_to_break = 1
    await world.live()
    assert (await recorded_moves(world))[1] == ("helpdesk@1", "gated", ALONE)


# --- how it behaves


@asynccontextmanager
async def judging(world: World, reward: Callable[[str], float]) -> AsyncIterator[None]:
    """A judge that gives each answer what `reward` makes of its words."""

    async def judge() -> None:
        with world.store.watch.on(Topic.GROUPS) as news:
            while True:
                await news.wait()
                while claim := await claim_for_judging(Project(world.store, "default"), "judge", 60):
                    members = (await load_group(world.store, claim.group_id)).members
                    parts = [NewPart(m.id, "reward", reward(str(m.messages[-1]["content"]))) for m in members]
                    await record_score(world.store, claim, new_score("recipe", parts=parts))

    async with keep_presence(Project(world.store, "default"), JUDGE, "judge", 60):
        task = asyncio.create_task(judge())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def by_words(words: str) -> float:
    return {"Good.": 1.0, "Bad.": 0.0}.get(words, 0.5)


async def test_a_version_that_is_judged_worse_is_rejected_and_the_pairs_are_never_trained_on(world: World) -> None:
    await recorded(world)
    world.engine.speech = {"helpdesk@1": Speech(content="Bad.")}
    async with judging(world, by_words):
        version = await world.becomes(await world.write(), VersionState.REJECTED)
    assert (version.reason or "").startswith("behaviour: it wins 0% of 16 pairs")
    pairs = (await list_groups(Project(world.store, "default"), limit=100)).lines
    runs = [
        r
        for r in (await list_trajectories(Project(world.store, "default"), limit=200)).lines
        if r.origin is Origin.SHADOW
    ]
    assert len(runs) == 2 * 2 * 16
    assert {(r.purpose, r.state) for r in runs} == {(Purpose.EVAL, TrajectoryState.COMPLETED)}
    assert {g.state for g in pairs if g.declared_size == 2} == {GroupState.MEASURED}
    assert (await waiting_for_training(world.store, version.alias_id)).groups == 0
    assert await answered_by(world, "helpdesk@1") == {"Bad."}
    assert await answered_by(world, "helpdesk@0") == {Speech().content}
    assert {g.version for g in pairs if g.declared_size == 2} == {"helpdesk@1"}  # the gate's own claim


async def answered_by(world: World, version: str) -> set[str]:
    """What the gate's answers say that are shown under a version; each was sampled by that version."""
    found = TrajectoryFilter(version=version, purpose=Purpose.EVAL)
    lines = (await list_trajectories(Project(world.store, "default"), found, limit=200)).lines
    views = [await load_trajectory(world.store, line.id) for line in lines]
    assert len(views) == 2 * 16
    names = {one.id: one.name for one in await get_versions(Project(world.store, "default"))}
    assert {names[call.version_id or ""] for view in views for call in view.calls} == {version}
    assert {names[view.version_id or ""] for view in views} == {version}
    return {str(view.messages[-1]["content"]) for view in views}


@pytest.mark.parametrize("words", [pytest.param("Good.", marks=pytest.mark.long), "As good."])
async def test_a_version_that_is_not_shown_worse_goes_live_with_its_figures(world: World, words: str) -> None:
    await recorded(world)
    world.engine.speech = {"helpdesk@1": Speech(content=words)}
    async with judging(world, by_words):
        await world.live()
    gated = (await list_moves(Project(world.store, "default")))[1]
    [compared] = (await version_detail(Project(world.store, "default"), "helpdesk@1")).held_out
    assert (compared.about.source, compared.about.beside, compared.unmeasured) == ("gate pairs", "helpdesk@0", 0)
    counts = (compared.won_count, compared.lost_count, compared.even_count)
    assert counts == ((8, 0, 0) if words == "Good." else (0, 0, 16))  # one task for each first turn
    assert gated.why == "sane"
    assert gated.figures["win_rate"] == by_words(words)
    assert gated.figures["pairs"] == (8 if words == "Good." else 24)  # a tie is no loss, and that shows too


@pytest.mark.parametrize(
    ("words", "pairs"), [("Good.", 8), ("Bad.", 16), pytest.param("As good.", 24, marks=pytest.mark.long)]
)
async def test_the_answers_that_sanity_looked_at_are_judged_and_only_further_ones_are_asked_for(
    world: World, words: str, pairs: int
) -> None:
    await recorded(world)
    world.engine.speech = {"helpdesk@1": Speech(content=words)}
    async with judging(world, by_words):
        await world.becomes(await world.write(), VersionState.REJECTED if words == "Bad." else VersionState.LIVE)
    asked = [name.split("-")[0] for what, name in world.engine.calls if what == "chat"]
    assert asked.count("helpdesk@1") == asked.count("base") == max(pairs, sanity.QUESTIONS)


async def test_only_the_newest_openings_are_asked(world: World) -> None:
    await recorded(world, sanity.QUESTIONS + 3)
    await world.live()
    assert sum(what == "chat" for what, _ in world.engine.calls) == 2 * sanity.QUESTIONS


async def test_where_no_judge_runs_sanity_decides_and_the_row_says_so(world: World) -> None:
    await recorded(world)
    await world.live()
    assert (await recorded_moves(world))[1] == ("helpdesk@1", "gated", ALONE)
