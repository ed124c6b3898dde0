"""Which sampled choices may be trained on, and the reason where one may not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from recorder.content.trainable import LeftOut, untrainable_reason
from recorder.content.turns import Address, Sampling, TrajectoryRef, Turn
from recorder.states import CallState, Confidence, Purpose, TurnKind
from tests.recorder.talk import assistant, choice, request, turn, user

REF = TrajectoryRef("traj_1", None)


def sampled(**sampling: Any) -> Turn:
    return turn(REF, request([user("hi")], sampling=Sampling(**sampling)), [choice(assistant("hello"))])


def reason(of: Turn) -> str | None:
    return untrainable_reason(of, of.choices[0])


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.1}, {"top_k": 0}, {"top_k": -1}, {"stop": ("x",)}, {"seed": 1, "max_tokens": 5}, {"n": 4}],
)
def test_plain_sampling_is_trainable(sampling: dict[str, Any]) -> None:
    assert reason(sampled(**sampling)) is None


@pytest.mark.parametrize(
    ("sampling", "code"),
    [
        ({"temperature": 0.0}, LeftOut.TEMPERATURE),
        ({"temperature": 0.09}, LeftOut.TEMPERATURE),
        ({"top_p": 0.9}, LeftOut.TOP_P),
        ({"top_k": 20}, LeftOut.TOP_K),
        ({"min_p": 0.05}, LeftOut.MIN_P),
        ({"distorting": ("presence_penalty",)}, LeftOut.DISTORTED),
    ],
)
def test_sampling_that_bends_the_distribution_is_not(sampling: dict[str, Any], code: LeftOut) -> None:
    assert reason(sampled(**sampling)) == code


def test_structured_output_is_not() -> None:
    form = {"type": "json_schema", "json_schema": {}}
    made = sampled()
    assert reason(replace(made, request=replace(made.request, response_format=form))) == LeftOut.STRUCTURED_OUTPUT
    assert reason(replace(made, request=replace(made.request, response_format={"type": "text"}))) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"finish_reason": "length"}, LeftOut.TRUNCATED),
        ({"finish_reason": None}, LeftOut.TRUNCATED),
        ({"token_ids": None}, LeftOut.IDS_MISSING),
        ({"token_ids": []}, LeftOut.IDS_MISSING),
        ({"logprobs": None}, LeftOut.LOGPROBS_MISSING),
        ({"logprobs": [-0.5, -0.25]}, LeftOut.LOGPROBS_MISCOUNTED),
        ({"logprobs": [-0.5, math.nan, -1.0]}, LeftOut.LOGPROBS_NOT_FINITE),
        ({"logprobs": [-0.5, -math.inf, -1.0]}, LeftOut.LOGPROBS_NOT_FINITE),
        ({"logprobs": [-0.5, -9999.0, -1.0]}, LeftOut.LOGPROBS_MISSING),
        ({"logprobs": [-0.5, 0.5, -1.0]}, LeftOut.LOGPROBS_ABOVE_ZERO),
        ({"logprobs": [-0.5, 1e-7, -1.0]}, None),
        ({"token_ids": [7, True, 9]}, LeftOut.IDS_MALFORMED),
        ({"finish_reason": "tool_calls"}, None),
    ],
)
def test_a_choice_needs_its_end_and_a_finite_logprob_for_each_id(changes: dict[str, Any], code: LeftOut | None) -> None:
    made = choice(assistant("hello"), **changes)
    assert untrainable_reason(turn(REF, request([user("hi")]), [made]), made) == code


def test_a_choice_whose_ids_could_not_be_read_is_not() -> None:
    made = sampled()
    assert untrainable_reason(made, made.choices[0], ids_readable=False) == LeftOut.IDS_MALFORMED


@pytest.mark.parametrize("purpose", [Purpose.VAL, Purpose.EVAL, Purpose.NONE])
def test_other_purposes_are_not_trained(purpose: Purpose) -> None:
    # the trajectory's purpose counts, whatever the call's address says
    made = turn(replace(REF, purpose=purpose), request([user("hi")]), [choice(assistant("hello"))])
    assert reason(made) == LeftOut.PURPOSE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": CallState.ABORTED}, LeftOut.NOT_COMPLETE),
        ({"state": CallState.ERRORED}, LeftOut.NOT_COMPLETE),
        ({"confidence": Confidence.AMBIGUOUS}, LeftOut.AMBIGUOUS),
        ({"confidence": Confidence.HINT}, LeftOut.AMBIGUOUS),
        ({"confidence": Confidence.EXACT}, None),
        ({"confidence": Confidence.NEW}, None),
        ({"address": Address(turn_kind=TurnKind.AUX)}, LeftOut.AUXILIARY),
    ],
)
def test_calls_that_are_broken_uncertain_or_beside_the_way_are_not(
    changes: dict[str, Any], code: LeftOut | None
) -> None:
    assert reason(turn(REF, request([user("hi")]), [choice(assistant("hello"))], **changes)) == code
