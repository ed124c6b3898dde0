"""Recorded pairs of an alias, and a fit on them, on a real store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sqlalchemy import insert, update

from recorder.messages.trainability import Exclusion
from recorder.queue import feedback
from recorder.queue.claims import GroupClaim
from recorder.queue.groups.disputes import PairChoice
from recorder.queue.training import steps, uses
from recorder.states import GroupState, Purpose, VersionState
from recorder.store import schema
from recorder.store.database import Project
from recorder.views.review.human_labels import ReviewAnswer, record_choice
from recorder.views.review.trajectories import project_draw
from recorder.views.trajectories import transcripts
from recorder.views.trajectory_detail.loader import load_detail
from tests.trainer.step.left import group_state
from tests.trainer.world import PROJECT, World
from trainer.artifacts import adapters
from trainer.errors import TrainerError
from trainer.objectives.imitate_rows import ImitationExclusion
from trainer.preferences.candidates import load_candidates
from trainer.preferences.pairs import PairExclusion
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.fits.pair_reader import PairReader, PairSource, ReadPairs
from trainer.step.fits.report import FitReport

pytestmark = pytest.mark.slow

FAST = {"lr": 1e-2, "batch_tokens": 200}
BOTH = [{"name": "group"}, {"name": "prefer", "weight": 0.5}]


async def members(world: World, group_id: str) -> list[str]:
    return [one.id for one in (await transcripts.load_group(world.store, group_id)).members]


async def candidates(world: World, margin: float = 0.5) -> tuple[set[tuple[str, str, str]], dict[str, int]]:
    """The pairs of the alias, and the number of others by the reason."""
    parent = await world.live()
    found = await load_candidates(
        Project(world.store, PROJECT), world.alias, margin=margin, epochs=1, parent_id=parent.id
    )
    left = Counter(code for _, code in found.excluded)
    return {(one.chosen, one.rejected, one.source) for one in found.found}, dict(left)


async def fit(world: World, **settings: object) -> FitReport[ReadPairs]:
    async with await world.trainer(dpo={**FAST, **settings}) as trainer:
        return await trainer.fit_once(PairSource())


async def test_pairs_are_the_rankings_of_groups_by_a_margin_and_what_people_prefer(world: World) -> None:
    project = Project(world.store, PROJECT)
    clear = await members(world, await world.group("clear", [0.2, 1.0, 0.0], seed=1))
    close = await members(world, await world.group("close", [0.6, 0.4, 0.5], seed=2))
    await world.group("validation", [1.0, 0.0], seed=3, purpose=Purpose.VAL)
    ranked = {(clear[1], clear[2], "ranking")}
    assert await candidates(world) == (ranked, {})
    assert await candidates(world, margin=0.1) == ({*ranked, (close[0], close[1], "ranking")}, {})
    assert await candidates(world, margin=1.1) == (set(), {})

    # a page's ranking, a person's review of two, and a program's feedback
    group = (await transcripts.load_trajectory(world.store, close[0])).group_id
    assert group is not None
    await feedback.write_preferences(project, group, [(close[1], close[0]), (close[0], close[2])], by="ann")
    draw = await project_draw(project)
    shown = draw.sides("ben", clear[0], clear[2])
    answer = ReviewAnswer.A if shown[0] == clear[2] else ReviewAnswer.B
    await record_choice(project, *shown, answer, by="ben")
    await feedback.add_feedback(project, clear[2], "preference", True, tags={"loser": clear[1]})
    people = {
        (close[1], close[0], "preference"),
        (close[0], close[2], "preference"),
        (clear[2], clear[0], "preference"),
        (clear[2], clear[1], "preference"),  # and not what the rewards of the same two say
    }
    assert await candidates(world) == (people, {})
    tie = PairChoice(close[1], close[0], tie=True)
    await feedback.write_choice(project, tie, by="ann", shown="first")
    assert await candidates(world) == (people - {(close[1], close[0], "preference")}, {})


async def test_the_rejected_side_is_of_the_alias_and_deleted_trajectories_are_no_pair(world: World) -> None:
    project = Project(world.store, PROJECT)
    own, other = await members(world, await world.group("g", [0.5, 0.5]))
    async with world.store.write() as conn:
        runs = schema.trajectories
        await conn.execute(update(runs).where(runs.c.id == other).values(alias_id=None))
    await feedback.add_feedback(project, own, "preference", True, tags={"loser": other})
    assert await candidates(world) == (set(), {PairExclusion.OTHER_MODEL: 1})
    await feedback.add_feedback(project, other, "preference", True, tags={"loser": own})
    assert await candidates(world) == ({(other, own, "preference")}, {})
    await feedback.add_feedback(project, own, "preference", True, tags={"loser": "traj_gone"})
    assert await candidates(world) == ({(other, own, "preference")}, {})


async def test_a_fit_on_pairs_makes_a_version_and_knows_each_pair_and_trajectory_that_it_used(world: World) -> None:
    groups = [await world.group(f"g{n}", [1.0, 0.5, 0.0], seed=n) for n in range(6)]
    parent = await world.live()
    report = await fit(world, epochs=2)
    version = report.version
    assert version is not None
    assert (version.name, version.state, version.parent_id) == ("org/helpdesk@1", VersionState.WRITTEN, parent.id)
    adapters.read_adapter(Path(str(version.path)), version.manifest_sha256)
    assert await group_state(world, groups[0]) == (GroupState.SCORED, None)
    assert (len(report.read.found), report.read.sources) == (6, {"ranking": 6})

    first, second = report.epochs
    assert second.trained["loss"] < first.trained["loss"]
    assert second.trained["accuracy"] == 1.0
    assert report.held_out_before == {"loss": pytest.approx(0.693147, abs=1e-6), "margin": 0.0, "accuracy": 0.0}
    metrics = version.metrics
    assert (metrics["epoch"], metrics["pairs"], metrics["rendered_tokens"]) == (report.best, 6, 0)
    best = report.epochs[(report.best or 0) - 1]
    assert metrics["held_out_margin"] == (best.held_out or {})["margin"]
    assert metrics["margin"] == best.trained["margin"]
    assert await steps.count_schedule_steps(world.store, world.alias.id, None) == 0

    both = [id_ for group in groups for id_ in (await members(world, group))[::2]]
    counted = await uses.count_uses(world.store, "prefer", both, version.id)
    assert len(counted) == 10  # the sides of five pairs; one task of six is held out
    assert set(counted.values()) == {report.best}
    pairs = [one.source_id for one in report.read.found]
    assert len(await uses.count_uses(world.store, "prefer", pairs, version.id)) == 5
    detail = await load_detail(world.store, next(iter(counted)))
    assert [(one.objective, one.version) for one in detail.outcome.objective_uses] == [("prefer", version.name)]
    await world.promote(version)
    _, left = await candidates(world)
    assert left == {ImitationExclusion.ALREADY_USED: 5}


async def test_the_reference_is_the_base_or_a_version_of_the_alias(world: World) -> None:
    for n in range(2):
        await world.group(f"g{n}", [1.0, 0.0], seed=n)
    first = (await fit(world, epochs=2)).version
    assert first is not None
    await world.promote(first)
    with pytest.raises(TrainerError, match=r"trainer\.dpo\.reference is 'org/helpdesk@7': no version"):
        await fit(world, epochs=9, reference="org/helpdesk@7")

    async def weights(reference: str) -> dict[str, torch.Tensor]:
        report = await fit(world, epochs=3, reference=reference)
        version = report.version
        assert version is not None
        (epoch, *_) = report.epochs
        # the parent prefers the pairs more than the base does, and not more than itself
        assert (epoch.trained["margin"] > 0.01) == (reference != first.name)
        async with world.store.write() as conn:  # as a proxy does with a version that it refuses
            table = schema.versions
            await conn.execute(update(table).where(table.c.id == version.id).values(state=VersionState.REJECTED))
        made: dict[str, torch.Tensor] = load_file(Path(str(version.path)) / "adapter_model.safetensors")
        return made

    of_base, same, of_version = await weights("base"), await weights("org/helpdesk@0"), await weights(first.name)
    assert all(torch.equal(same[name], value) for name, value in of_base.items())
    assert any(not torch.equal(of_version[name], value) for name, value in of_base.items())
    (folder := Path(str(first.path))).rename(folder.with_name("elsewhere"))
    with pytest.raises(TrainerError, match="its adapter is not on disk any more"):
        await fit(world, epochs=9, reference=first.name)


async def test_what_may_not_be_trained_on_is_counted_and_named(world: World) -> None:
    project = Project(world.store, PROJECT)
    groups = [await world.group(f"g{n}", [1.0, 0.0], seed=n) for n in range(4)]
    both = [await members(world, group) for group in groups]
    campaign = {"id": "camp", "project_id": PROJECT, "alias_id": world.alias.id, "name": "c", "settings": {}}
    scenario = {"id": "val", "project_id": PROJECT, "campaign_id": "camp", "input": "x", "external_id": "order 1"}
    async with world.store.write() as conn:
        await conn.execute(insert(schema.campaigns).values(campaign | {"state": "done", "started_at": 0.0}))
        await conn.execute(insert(schema.scenarios).values(scenario | {"split": "val"}))
        own = update(schema.groups).where(schema.groups.c.id == groups[0])
        await conn.execute(own.values(scenario_id="val"))
        calls, choices = schema.calls.c, schema.choices.c
        cut = schema.choices.c.call_id.in_(
            schema.calls.select().with_only_columns(calls.id).where(calls.trajectory_id == both[1][1])
        )
        await conn.execute(update(schema.choices).where(cut, choices.index == 0).values(finish_reason="length"))
        foreign = update(schema.calls).where(calls.trajectory_id == both[2][0])
        await conn.execute(foreign.values(model="frontier", base_fingerprint=None))
    await feedback.add_feedback(project, both[3][0], "preference", True, tags={"loser": both[2][1]})
    report = await fit(world)
    # without a tokenizer nothing is rendered, so the side of the other model has no rows
    reasons = [ImitationExclusion.HELD_OUT_SCENARIO, Exclusion.TRUNCATED, Exclusion.BASE_FINGERPRINT]
    assert report.read.left == dict.fromkeys([*reasons, PairExclusion.DIFFERENT_TASKS], 1)
    assert f"{both[0][0]} over {both[0][1]}: held_out_scenario" in report.read.named
    assert [(one.chosen.source_id, one.rejected.source_id) for one in report.read.found] == [tuple(both[3])]


async def test_conditions_select_pairs_by_both_sides_or_one(world: World) -> None:
    project = Project(world.store, PROJECT)
    both = [await members(world, await world.group(f"g{n}", [1.0, 0.0], seed=n)) for n in range(3)]
    for id_ in (*both[0], both[1][0]):
        await feedback.set_tag(project, id_, "team", "billing")
    await feedback.add_feedback(project, both[2][1], "preference", True, tags={"loser": both[2][0]})

    async def selected(*where: str) -> set[str]:
        async with await world.trainer() as trainer:
            read = await PairReader(trainer._context).from_record(
                where, await trainer._imitate_basis(), margin=0.5, epochs=1, parent_id=(await world.live()).id
            )
        assert read.left == {}  # what is not selected is not excluded
        return {one.chosen.source_id for one in read.found}

    assert await selected() == {both[0][0], both[1][0], both[2][1]}
    assert await selected("tag.team = billing") == {both[0][0]}
    assert await selected("chosen.tag.team = billing") == {both[0][0], both[1][0]}
    assert await selected("chosen.tag.team = billing", "rejected.tag.team != billing") == {both[1][0]}
    assert await selected("chosen.best_of_group = no") == {both[2][1]}
    assert await selected("chosen.reward >= 0.9", "rejected.reward < 0.5") == {both[0][0], both[1][0]}
    assert await selected("reward >= 0.9") == set()


async def test_without_a_pair_no_version_is_made_and_it_says_why(world: World) -> None:
    await world.group("g", [0.6, 0.4])
    report = await fit(world)
    assert (report.version, report.reason) == (None, "no pair can be trained on")


async def test_a_step_on_groups_takes_pairs_too_and_its_ledger_names_both_objectives(world: World) -> None:
    older = await members(world, await world.group("older", [0.4, 0.6], seed=1))
    await feedback.add_feedback(Project(world.store, PROJECT), older[0], "preference", True, tags={"loser": older[1]})
    first = await members(world, await world.group("first", [1.0, 0.5, 0.0], seed=2))
    pairs = [f"{older[0]}>{older[1]}", f"{first[0]}>{first[2]}"]
    async with await world.trainer(objectives=BOTH) as trainer:
        report = await trainer.train_once([await claim_of(world, trainer, first[0])])
        assert report.version is not None
        metrics = report.metrics
        assert metrics["pairs"] == 1  # three trajectories are trained: more than one pair would outweigh them
        assert (metrics["objective.group.tokens"], metrics["objective.prefer.tokens"]) == (3 * 12, 2 * 12)
        assert metrics["loss"] == pytest.approx(metrics["objective.group.loss"] + metrics["objective.prefer.loss"])
        # the parent is the base, which is the reference
        assert metrics["objective.prefer.loss"] == pytest.approx(0.5 * 0.693147, abs=1e-5)
        assert (metrics["objective.prefer.margin"], metrics["objective.prefer.accuracy"]) == (0, 0)
        shares = [metrics[f"objective.{name}.gradient_share"] for name in ("group", "prefer")]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) > 0.01
        assert await uses.count_uses(world.store, "prefer", pairs, report.version.id) == {pairs[0]: 1}
        await world.promote(report.version)

        await world.group("second", [0.5, 0.4], seed=3)
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        # people's pair is used up; the ranking's sides were trained on by their group in the step before
        assert await uses.count_uses(world.store, "prefer", pairs, report.version.id) == dict.fromkeys(pairs, 1)
        assert report.metrics["objective.prefer.margin"] > 0
        detail = await load_detail(world.store, first[0])
        assert [one.version for one in detail.outcome.training_uses] == ["org/helpdesk@1"]
        assert [(one.objective, one.version) for one in detail.outcome.objective_uses] == [("prefer", "org/helpdesk@2")]


async def test_a_reference_that_is_not_there_is_refused_before_anything_is_sampled(world: World) -> None:
    with pytest.raises(TrainerError, match=r"trainer\.dpo\.reference is 'org/helpdesk@7': no version"):
        await world.trainer(objectives=BOTH, dpo={"reference": "org/helpdesk@7"})


async def claim_of(world: World, trainer: AliasTrainer, trajectory_id: str) -> GroupClaim:
    group = (await transcripts.load_trajectory(world.store, trajectory_id)).group_id
    (claim,) = [one for one in await world.claim(trainer) if one.group_id == group]
    return claim
