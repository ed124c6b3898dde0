"""A teacher's advantages: the loss is TRL's sampled-token SDPO loss, whatever else the step trains on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from tests.trainer.building import random_ids, trained_row
from tests.trainer.objectives import toy_batch
from tests.trainer.objectives.trl_reference import FILE
from trainer.batch.layouts import make_packs
from trainer.batch.packing import pack
from trainer.batch.row_builder import Row
from trainer.batch.weights import Lesson, LessonRow, WeightedRow
from trainer.objectives.lessons import DISTILL, HINDSIGHT, lesson_uses, turn_id, weigh_lessons
from trainer.objectives.registry import weigh_step
from trainer.objectives.step_data import StepData
from trainer.policy.losses import LOSSES
from trainer.policy.packs.lessons import LessonPasses, take_lessons
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.update import weighted_losses
from trainer.settings import TrainerSettings
from trainer.step.passes import StepPasses

ALONE = [{"name": HINDSIGHT}]
FAR = 100.0  # no advantage is clipped


def asked_row(row: Row) -> Row:
    """The same answers after another prompt."""
    return replace(row, token_ids=row.token_ids + 500, behaviour=np.full(len(row), np.nan, np.float32))


def step_data(clip: float = FAR, name: str = HINDSIGHT) -> StepData:
    """The toy batch's trajectories, each with a lesson by the parent."""
    rows = [LessonRow(row, Lesson("parent", clip, (asked_row(row),))) for row in toy_batch.rows()]
    return StepData(lessons={name: rows})


def measured(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
    """The toy batch's logprobs: the teacher's for other prompts."""
    own = dict(zip(toy_batch.names(), toy_batch.policy_logprobs(), strict=True))
    teachers = dict(zip(toy_batch.names(), toy_batch.teacher_logprobs(), strict=True))
    return [(teachers if row.token_ids[0] >= 500 else own)[row.trajectory_id] for row in rows]


def nothing(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
    raise AssertionError("no pass by the base is asked for")


def learned(settings: TrainerSettings, clip: float = FAR) -> tuple[list[WeightedRow], dict[str, float]]:
    return take_lessons(weigh_step(step_data(clip), settings), LessonPasses(measured, nothing, nothing))


def compute(weighted: list[WeightedRow], settings: TrainerSettings) -> tuple[float, dict[str, list[float]]]:
    """Loss, and its gradient by the logprobs of each trajectory's tokens, in float64."""
    one, tokens = toy_batch.gathered(weighted, settings)
    logprobs = toy_batch.in_order(one, weighted, toy_batch.policy_logprobs()).requires_grad_()
    advantages = torch.from_numpy(np.concatenate([np.asarray(weighted[index].advantage) for index in one.rows]))
    tokens = replace(tokens, behaviour=toy_batch.in_order(one, weighted, toy_batch.behaviour()), advantages=advantages)
    _, losses, _ = weighted_losses(tokens, logprobs, None, settings)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    parts = torch.split(gradient, [weighted[index].row.trained_tokens for index in one.rows])
    owners = [weighted[index].row.trajectory_id for index in one.rows]
    return float(losses.detach().sum()), {name: part.tolist() for name, part in zip(owners, parts, strict=True)}


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_what_trl_computes_for_a_sampled_token_whatever_the_surrogate_is(loss: Any) -> None:
    settings = TrainerSettings(objectives=ALONE, loss=loss)
    found, gradient = compute(learned(settings)[0], settings)
    trl = json.loads(FILE.read_text("utf-8"))["sdpo"]
    assert found == pytest.approx(trl["loss"], abs=1e-6)
    for name, expected in zip(toy_batch.names(), trl["gradient"], strict=True):
        np.testing.assert_allclose(gradient[name], expected, atol=1e-6)


def test_advantages_are_bounded_and_their_figures_say_how_many() -> None:
    settings = TrainerSettings(objectives=ALONE)
    rows, figures = learned(settings, clip=0.3)
    raw = np.concatenate(toy_batch.teacher_logprobs()) - np.concatenate(toy_batch.policy_logprobs())
    found = np.concatenate([np.asarray(one.advantage) for one in rows])
    np.testing.assert_allclose(np.sort(found), np.sort(raw.clip(-0.3, 0.3)))
    assert figures["objective.hindsight.clipped"] == pytest.approx((np.abs(raw) > 0.3).mean())
    assert figures["objective.hindsight.advantage"] == pytest.approx(raw.clip(-0.3, 0.3).mean())
    assert all(one.lesson is None for one in rows)


@given(order=st.permutations(range(4)), budget=st.sampled_from([0, 13, 20, 10_000]))
def test_neither_the_order_of_rows_nor_their_packs_change_the_loss(order: list[int], budget: int) -> None:
    settings = TrainerSettings(objectives=ALONE)
    given_rows, _ = learned(settings)
    whole, _ = compute(given_rows, settings)
    rows = [given_rows[at] for at in order]
    total = 0.0
    for one in pack([each.row.token_ids for each in rows], budget):
        logprobs = toy_batch.in_order(one, rows, toy_batch.policy_logprobs())
        exact: dict[str, Any] = {
            "behaviour": toy_batch.in_order(one, rows, toy_batch.behaviour()),
            "advantages": torch.from_numpy(np.concatenate([np.asarray(rows[index].advantage) for index in one.rows])),
        }
        tokens = replace(gather_tokens(one, rows, torch.device("cpu")), **exact)
        total += float(weighted_losses(tokens, logprobs, None, settings)[1].sum())
    assert total == pytest.approx(whole, abs=1e-7)  # weights are float32


def test_the_other_objectives_of_a_step_are_computed_as_without_it() -> None:
    settings = TrainerSettings(objectives=[{"name": "group"}, {"name": HINDSIGHT, "weight": 0.2}])
    data = StepData([toy_batch.group(dict.fromkeys(toy_batch.names(), 0.5))], lessons=step_data().lessons)
    rows, _ = take_lessons(weigh_step(data, settings), LessonPasses(measured, nothing, nothing))
    mixed, _ = compute([one for one in rows if one.objective == HINDSIGHT], settings)
    alone, _ = compute(learned(TrainerSettings(objectives=ALONE))[0], TrainerSettings())
    assert mixed == pytest.approx(0.2 * alone)
    both = [one for one in rows if one.row.trajectory_id == toy_batch.names()[0]]
    (one,) = pack([each.row.token_ids for each in both], 10_000)
    tokens = gather_tokens(one, both, torch.device("cpu"))
    logprobs = torch.from_numpy(np.concatenate([toy_batch.policy_logprobs()[0]] * 2)).float()
    apart = sum(
        float(weighted_losses(gather_tokens(own, [each], torch.device("cpu")), logprobs[:3], None, settings)[1].sum())
        for each in both
        for own in pack([each.row.token_ids], 10_000)
    )
    assert float(weighted_losses(tokens, logprobs, None, settings)[1].sum()) == pytest.approx(apart, abs=1e-6)


def test_without_a_lesson_nothing_is_computed() -> None:
    rows = weigh_step(StepData([toy_batch.group(dict.fromkeys(toy_batch.names(), 0.5))]), TrainerSettings())
    assert take_lessons(rows, LessonPasses(nothing, nothing, nothing)) == (rows, {})


def test_a_remote_teacher_is_compared_at_temperature_1_and_the_base_by_its_own_pass() -> None:
    row = replace(toy_batch.rows()[0], temperature=np.where(toy_batch.rows()[0].trained, 0.5, np.nan))
    known = np.array([-1.0, -2.0, -3.0])
    given_rows = [
        WeightedRow(row, 0.0, 0.0, objective=DISTILL, lesson=Lesson("remote", FAR, known=known)),
        WeightedRow(row, 0.0, 0.0, objective=HINDSIGHT, lesson=Lesson("base", FAR, (asked_row(row),))),
    ]
    asked: list[tuple[str, float]] = []

    def by(name: str, value: float) -> Callable[[Sequence[Row]], list[NDArray[np.floating]]]:
        def measure(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
            asked.extend((name, float(one.temperature[one.trained][0])) for one in rows)
            return [np.full(3, value) for _ in rows]

        return measure

    rows, _ = take_lessons(given_rows, LessonPasses(by("parent", -2.5), by("base", -1.5), nothing))
    assert asked == [("parent", 1.0), ("parent", 0.5), ("base", 0.5)]
    np.testing.assert_allclose(np.asarray(rows[0].advantage), [1.5, 0.5, -0.5])
    np.testing.assert_allclose(np.asarray(rows[1].advantage), [1.0, 1.0, 1.0])


@pytest.mark.slow
def test_a_hint_that_changes_nothing_gives_no_gradient_and_another_one_what_the_teacher_says(
    tiny_policy: Callable[..., Any],
) -> None:
    policy = tiny_policy()
    with torch.no_grad():
        for number, parameter in enumerate(policy.parameters.values()):
            torch.manual_seed(number)
            parameter.normal_(std=0.05)
    settings = TrainerSettings(objectives=ALONE, token_budget=512, device="cpu", rank=4)
    passes = StepPasses(policy, settings)
    ids, answer = random_ids(20, 3), random_ids(6, 4)
    row = trained_row([*ids, *answer], list(range(20, 26)), temperature=0.8)
    other = trained_row([*ids, *random_ids(9, 5), *answer], list(range(29, 35)), temperature=0.8, behaviour=np.nan)
    by_teacher = {}
    for name, asked in (("parent", row), ("parent hinted", other), ("base", row)):
        lesson = Lesson("base" if name == "base" else "parent", FAR, (asked,))
        weighted = [WeightedRow(row, 0.0, 0.0, taught_weight=1.0, objective=HINDSIGHT, lesson=lesson)]
        (found,), _ = take_lessons(weighted, passes._lesson_passes(lambda: False))
        by_teacher[name] = np.asarray(found.advantage)
    assert not by_teacher["parent"].any()
    own, hinted = (logprobs_of(policy, [*ids, *between], answer) for between in ([], random_ids(9, 5)))
    np.testing.assert_allclose(by_teacher["parent hinted"], hinted - own, atol=1e-5)
    with policy.base_only():
        base = logprobs_of(policy, ids, answer)
    np.testing.assert_allclose(by_teacher["base"], base - own, atol=1e-5)
    assert np.abs(base - own).max() > 1e-3


def logprobs_of(policy: Any, prompt: list[int], answer: list[int]) -> NDArray[np.floating]:
    """Of one row alone, at the temperature 0.8."""
    (alone,) = make_packs([np.array([*prompt, *answer], np.int32)], 512, policy.layout)
    with torch.no_grad():
        logits = policy.head(policy.hidden(alone))
    tempered = torch.log_softmax(logits / 0.8, -1)
    return np.array([float(tempered[len(prompt) + at - 1, id_]) for at, id_ in enumerate(answer)])


def test_each_trajectory_has_the_same_weight_and_its_turns_are_what_was_used() -> None:
    settings = TrainerSettings(objectives=[{"name": HINDSIGHT, "weight": 0.5}], substeps=2)
    rows = weigh_lessons(step_data(), settings.objectives[0], settings)
    for substep in range(2):
        shares = [
            float(np.asarray(one.taught_weight)) * one.row.trained_tokens for one in rows if one.substep == substep
        ]
        np.testing.assert_allclose(shares, [0.25, 0.25])
    assert all(one.rl_weight == one.ce_weight == one.kl_weight == 0 for one in rows)
    used = lesson_uses(HINDSIGHT, step_data().lessons[HINDSIGHT])
    assert [one.source_id for one in used if one.kind == "turn"][:2] == [turn_id(("call-0-0", 0)), "call-1-0:0"]
    assert {one.source_id: one.times for one in used if one.kind == "trajectory"}["trajectory-2"] == 3


@pytest.mark.parametrize(
    ("given_settings", "why"),
    [
        ({"objectives": [{"name": HINDSIGHT, "where": "reward > 0"}]}, "has no where"),
        ({"objectives": [{"name": HINDSIGHT}, {"name": "imitate", "where": "reward > 0"}]}, 'add {name = "group"}'),
        ({"objectives": [{"name": DISTILL}]}, "set trainer.distill.url and trainer.distill.model"),
        ({"distill": {"url": "gpu-2:8000"}}, "http:// or https://"),
        ({"distill": {"url": "http://gpu-2:8000", "api_key_env": "KEY"}}, "give an https address"),
        ({"hindsight": {"teacher": "live"}}, "parent"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_to_do(given_settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TrainerSettings(**given_settings)


def test_it_is_off_unless_it_is_named() -> None:
    assert [one.name for one in TrainerSettings().objectives] == ["group"]
    assert TrainerSettings(objectives=ALONE).uses_rewards is False
