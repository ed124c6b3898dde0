"""Steps that learn from what came next, or from a stronger model, on a real store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from sqlalchemy import update

from recorder.queue.training import uses
from recorder.states import GroupState, Purpose
from recorder.store import ledger
from recorder.store.schema import score_parts, trajectories
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectory_detail.loader import load_detail
from tests.trainer.step.left import group_state
from tests.trainer.world import Engine, World
from trainer.artifacts import adapters
from trainer.artifacts.checkpoint import STATE
from trainer.demonstrations.chat_template import ChatTemplate, OpenPrompt
from trainer.errors import StepFailed, TrainerError
from trainer.objectives.group_rows import UntrainedChoice
from trainer.objectives.lessons import DISTILL, HINDSIGHT, turn_id
from trainer.settings import DistillSettings
from trainer.step.fits import context, lesson_joiner
from trainer.teachers.distill import StrongerModel
from trainer.teachers.hint_sources import list_teaching, load_critiques
from trainer.teachers.hint_text import HintPart
from trainer.teachers.hinted_prompt import HintExclusion
from trainer.teachers.remote_model import RemoteModel

pytestmark = pytest.mark.slow

GROUP = {"name": "group"}
MIXED: list[dict[str, Any]] = [GROUP, {"name": HINDSIGHT, "weight": 0.2}]
TO_TEACHER = {"url": "http://teacher", "model": "big", "clip": 0.75}


class ToyTemplate:
    """The toy base has no tokenizer: words and characters stand for ids here."""

    tool_mark = None
    marks: Sequence[str] = ()

    def __init__(self, base: Path, template: Path | None = None) -> None:
        pass

    def write_prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, options: Mapping[str, Any] | None = None
    ) -> OpenPrompt:
        text = "\n".join(str(one["content"]) for one in messages)
        return OpenPrompt(text, self.encode(text)[-60:], self.encode(""))

    def encode(self, text: str) -> Any:
        return np.array([3 + ord(one) % 57 for one in text], np.int32)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "ChatTemplate", ToyTemplate)


async def views(world: World, group_id: str) -> list[TrajectoryView]:
    return list((await transcripts.load_group(world.store, group_id, with_tokens=True)).members)


async def used(world: World, version_id: str, objective: str, members: Sequence[TrajectoryView]) -> list[str]:
    keys = [turn_id((call.id, 0)) for view in members for call in view.calls]
    return list(await uses.count_uses(world.store, objective, keys, version_id))


async def test_a_step_learns_from_what_came_next_beside_its_groups_and_takes_each_answer_once(world: World) -> None:
    first = await world.group("g1", [1.0, 0.0, 0.2], seed=1)
    members = await views(world, first)
    parent = await world.live()
    async with await world.trainer(objectives=MIXED, hindsight={"clip": 0.5}) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        metrics = report.metrics
        # the user wrote "go on" behind the first of two answers
        assert metrics["objective.hindsight.turns"] == 3
        assert metrics["objective.hindsight.tokens"] == 3 * 6
        assert metrics["objective.group.tokens"] == 3 * 12
        shares = [metrics[f"objective.{name}.gradient_share"] for name in ("group", "hindsight")]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) > 0.001
        assert metrics["loss"] == pytest.approx(metrics["objective.group.loss"] + metrics["objective.hindsight.loss"])
        raw = np.concatenate([advantages(world.base, parent.path, view) for view in members])
        assert metrics["objective.hindsight.advantage"] == pytest.approx(raw.clip(-0.5, 0.5).mean(), abs=1e-4)
        assert metrics["objective.hindsight.clipped"] == pytest.approx((np.abs(raw) > 0.5).mean())
        first_calls = {turn_id((view.calls[0].id, 0)) for view in members}
        assert set(await used(world, report.version.id, HINDSIGHT, members)) == first_calls
        detail = await load_detail(world.store, members[0].id)
        assert [(one.objective, one.times) for one in detail.outcome.objective_uses] == [(HINDSIGHT, 1)]

        await world.promote(report.version)
        second = await world.group("g2", [0.0, 1.0], seed=2, turns=1)
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.metrics["objective.hindsight.turns"] == 0  # `epochs` is 1, and nothing follows the new answers
        assert await used(world, report.version.id, HINDSIGHT, await views(world, second)) == []


def advantages(base: Path, path: str | None, view: TrajectoryView) -> Any:
    """What the whole model says of a trajectory's first answer with the hint, minus what it says without."""
    one = view.calls[0]
    assert one.prompt_token_ids is not None
    sampled = list(one.choices[0].token_ids or ())
    said = [str(message["content"]) for message in one.messages]
    hint = lesson_text("go on")
    hinted = ToyTemplate(base).write_prompt([*({"content": text} for text in said), {"content": hint}], None).ids
    engine = Engine(base)
    with_hint = engine.logprobs(path, hinted.tolist(), sampled, 0.8)
    return np.array(with_hint) - np.array(engine.logprobs(path, list(one.prompt_token_ids), sampled, 0.8))


def lesson_text(text: str) -> str:
    from trainer.teachers.hint_text import HintPart, write_hint

    return write_hint([HintPart("message", text)], 4000)


async def test_a_critique_is_the_hint_of_the_last_answer_and_epochs_allow_an_answer_again(world: World) -> None:
    group = await world.group("g1", [1.0, 0.0], seed=1)
    good, bad = await views(world, group)
    explained = update(score_parts).where(score_parts.c.trajectory_id == bad.id, score_parts.c.part == "reward")
    async with world.store.write() as conn:
        await conn.execute(explained.values(explanation="It named another parcel."))
    only: dict[str, Any] = {
        "objectives": [GROUP, {"name": HINDSIGHT, "epochs": 2}],
        "hindsight": {"hints": ["critique"]},
    }
    async with await world.trainer(**only) as trainer:
        for number, times in enumerate((1, 2, 2), start=1):
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            key = turn_id((bad.calls[-1].id, 0))
            assert await uses.count_uses(world.store, HINDSIGHT, [key], report.version.id) == {key: times}
            assert await used(world, report.version.id, HINDSIGHT, [good]) == []
            await world.promote(report.version)
            await world.group(f"more {number}", [1.0, 0.0], seed=10 + number)


async def test_a_line_about_a_turn_is_the_hint_of_that_turn(world: World) -> None:
    group = await world.group("g1", [1.0, 0.0], seed=1, rated=[[1.0, 0.5], [0.0, 0.25, 0.5]])
    good, bad = await views(world, group)
    lines = {"checked.turn.1": "It looked in the wrong place.", "checked.turn.3": "No such turn.", "reward": "Lost."}
    async with world.store.write() as conn:
        for part, line in lines.items():
            of_part = update(score_parts).where(score_parts.c.trajectory_id == bad.id, score_parts.c.part == part)
            await conn.execute(of_part.values(explanation=line))
    first, last = bad.main_path
    assert await load_critiques(world.store, [good, bad]) == {
        first: [HintPart("critique", "It looked in the wrong place.")],
        last: [HintPart("critique", "Lost.")],
    }


async def test_texts_of_trajectories_that_are_not_trained_on_are_no_hints(world: World) -> None:
    trained = await views(world, await world.group("g1", [1.0, 0.0], seed=1))
    measured = await views(world, await world.group("g2", [1.0, 0.0], seed=2, purpose=Purpose.VAL))
    ids = [view.id for view in (*trained, *measured)]
    assert await list_teaching(world.store, ids) == {view.id for view in trained}
    async with world.store.write() as conn:
        await conn.execute(update(trajectories).where(trajectories.c.id == ids[0]).values(drift_set_at=1.0))
    assert await list_teaching(world.store, ids) == {ids[1]}


async def test_alone_it_needs_no_rewards_that_differ_and_ends_groups_without_a_lesson(world: World) -> None:
    equal = await world.group("g1", [0.5, 0.5], seed=1)
    async with await world.trainer(objectives=[{"name": HINDSIGHT}]) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.trained == 2
        assert report.metrics["objective.hindsight.tokens"] == report.metrics["trained_tokens"] == 2 * 6
        assert await group_state(world, equal) == (GroupState.TRIED, None)
        detail = await load_detail(world.store, (await views(world, equal))[0].id)
        assert detail.outcome.training_uses == ()
        assert [one.objective for one in detail.outcome.objective_uses] == [HINDSIGHT]
        await world.promote(report.version)
        silent = await world.group("g2", [1.0, 0.0], seed=2, turns=1)
        report = await trainer.train_once(await world.claim(trainer))
        assert (report.version, report.reason) == (None, "no turn has a lesson to train on")
        assert await group_state(world, silent) == (GroupState.LEFT_OUT, UntrainedChoice.NO_LESSON)


async def test_the_base_may_be_the_teacher_and_substeps_divide_the_trajectories(world: World) -> None:
    await world.group("g1", [0.5, 0.5, 0.5], seed=1)
    settings: dict[str, Any] = {"objectives": [{"name": HINDSIGHT}], "substeps": 2, "mask_ratio": 1.5}
    async with await world.trainer(**settings, hindsight={"teacher": "base"}) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.metrics["objective.hindsight.tokens"] == 3 * 6
        assert report.metrics["engine_mismatch"] == 0


async def test_the_moving_average_of_the_versions_teaches_and_outlives_the_process(world: World) -> None:
    settings: dict[str, Any] = {"objectives": [{"name": HINDSIGHT}], "hindsight": {"teacher": "ema"}}
    weights: list[Mapping[str, torch.Tensor]] = []
    averages: list[Mapping[str, torch.Tensor]] = []
    for number in range(2):
        await world.group(f"g{number}", [0.5, 0.5], seed=number)
        async with await world.trainer(**settings) as trainer:
            report = await trainer.train_once(await world.claim(trainer))
            version = report.version
            assert version is not None
            assert version.path is not None
            weights.append(adapters.read_adapter(Path(version.path), version.manifest_sha256))
            state = torch.load(world.data / "checkpoints" / version.engine_name / STATE, weights_only=True)
            averages.append(state["average"])
            await world.promote(version)
    for name, mean in averages[1].items():
        torch.testing.assert_close(mean, 0.95 * averages[0][name] + 0.05 * weights[1][name])
    assert any(not torch.equal(mean, weights[1][name]) for name, mean in averages[1].items())
    # of the first step, whose average began as the untrained LoRA: B is 0 there
    for name, mean in averages[0].items():
        if "lora_B" in name:
            torch.testing.assert_close(mean, 0.05 * weights[0][name])


async def test_a_hint_that_is_too_long_is_written_down_once(world: World) -> None:
    group = await world.group("g1", [1.0, 0.0], seed=1)
    members = await views(world, group)
    async with await world.trainer(objectives=MIXED, max_model_len=50) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert (report.metrics["objective.hindsight.turns"], report.metrics["objective.hindsight.excluded"]) == (0, 2)
        await world.promote(report.version)
        await world.group("g2", [1.0, 0.0], seed=2, turns=1)
        assert (await trainer.train_once(await world.claim(trainer))).version is not None
    rows = await ledger.object_entries(world.store, "call", members[0].calls[0].id)
    assert [(row.code, (row.detail or {})["objective"]) for row in rows] == [(HintExclusion.HINT_TOO_LONG, HINDSIGHT)]


async def test_a_base_without_a_chat_template_is_refused_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "ChatTemplate", ChatTemplate)
    with pytest.raises(TrainerError, match="has no chat template, so conversations cannot be rendered"):
        await world.trainer(objectives=MIXED)


# --- a stronger model


class Teacher:
    """A vLLM that serves the base: what it says is computed by the whole model at temperature 1."""

    def __init__(self, base: Path) -> None:
        self._engine = Engine(base)
        self.is_away = False
        self.shift = 0  # of another tokenizer's ids

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            raise httpx.ConnectError("refused")
        asked = json.loads(request.content)["prompt"]
        if request.url.path == "/tokenize":
            return httpx.Response(200, json={"tokens": (ToyTemplate(Path()).encode(asked) + self.shift).tolist()})
        logprobs = self._engine.logprobs(None, asked[:1], asked[1:], 1.0)
        rows = [None, *({str(id_): {"logprob": one}} for id_, one in zip(asked[1:], logprobs, strict=True))]
        return httpx.Response(200, json={"choices": [{"prompt_logprobs": rows}]})


@pytest.fixture
def teacher(world: World, monkeypatch: pytest.MonkeyPatch) -> Teacher:
    made = Teacher(world.base)

    def stronger(settings: DistillSettings) -> StrongerModel:
        return StrongerModel(settings, lambda own: RemoteModel(own, httpx.MockTransport(made)))

    monkeypatch.setattr(lesson_joiner, "StrongerModel", stronger)
    return made


async def test_a_stronger_model_teaches_beside_the_groups_and_a_step_is_made_without_one_that_is_away(
    world: World, teacher: Teacher
) -> None:
    both = [{"name": HINDSIGHT}, {"name": DISTILL, "weight": 0.5}]
    group = await world.group("g1", [0.5, 0.5], seed=1)
    async with await world.trainer(objectives=both, distill=TO_TEACHER) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.notice is None
        assert report.metrics["objective.distill.tokens"] == 2 * 12
        # the parent is the base itself, and both are compared at temperature 1
        assert report.metrics["objective.distill.advantage"] == pytest.approx(0, abs=1e-5)
        assert len(await used(world, report.version.id, DISTILL, await views(world, group))) == 4

        await world.promote(report.version)
        teacher.is_away = True
        await world.group("g2", [0.5, 0.5], seed=2)
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert "objective.distill.tokens" not in report.metrics
        assert report.notice == (
            "big at http://teacher does not answer (ConnectError): the step was made without distill."
        )


async def test_alone_a_step_waits_for_the_stronger_model_and_refuses_another_tokenizer(
    world: World, teacher: Teacher
) -> None:
    group = await world.group("g1", [0.5, 0.5], seed=1)
    teacher.is_away = True
    async with await world.trainer(objectives=[{"name": DISTILL}], distill=TO_TEACHER) as trainer:
        with pytest.raises(StepFailed, match="does not answer"):
            await trainer.train_once(await world.claim(trainer))
        assert await group_state(world, group) == (GroupState.SCORED, None)
        teacher.is_away, teacher.shift = False, 1
        with pytest.raises(TrainerError, match="is not the base's"):
            await trainer.train_once(await world.claim(trainer))
