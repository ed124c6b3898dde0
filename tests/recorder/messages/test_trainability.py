"""Which sampled choices may be trained on, and the reason where one may not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from recorder.messages.calls import Address, RecordedCall, SamplingParameters, TrajectoryRef
from recorder.messages.trainability import Exclusion, untrainable_reason
from recorder.states import CallKind, CallState, Confidence, Purpose
from tests.recorder.talk import assistant, choice, request, turn, user

REF = TrajectoryRef("traj_1", None)


def sampled(**sampling: Any) -> RecordedCall:
    return turn(REF, request([user("hi")], sampling=SamplingParameters(**sampling)), [choice(assistant("hello"))])


def reason(of: RecordedCall) -> str | None:
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
        ({"temperature": 0.0}, Exclusion.TEMPERATURE),
        ({"temperature": 0.09}, Exclusion.TEMPERATURE),
        ({"top_p": 0.9}, Exclusion.TOP_P),
        ({"top_k": 20}, Exclusion.TOP_K),
        ({"min_p": 0.05}, Exclusion.MIN_P),
        ({"distorting": ("presence_penalty",)}, Exclusion.DISTORTED),
    ],
)
def test_sampling_that_bends_the_distribution_is_not(sampling: dict[str, Any], code: Exclusion) -> None:
    assert reason(sampled(**sampling)) == code


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize("role", ["user", "tool", "system"])
@pytest.mark.parametrize(
    "part",
    [
        PICTURE,
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.test/a.mp4"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "a kind of tomorrow"},
        {"type": {"text": 1}},
        {"type": None},
    ],
)
def test_a_prompt_with_media_is_not_wherever_it_holds_them(role: str, part: dict[str, Any]) -> None:
    made = sampled()
    early = [{"role": role, "content": [{"type": "text", "text": "see"}, part]}, assistant("seen"), user("and now?")]
    assert reason(replace(made, request=replace(made.request, messages=early))) == Exclusion.MEDIA


def test_parts_that_are_text_are_no_media() -> None:
    made = sampled()
    parts = [{"type": kind, kind: "x"} for kind in ("text", "input_text", "output_text", "refusal", "thinking")]
    for content in (parts, [{"text": "without a type"}], ["plain"], None, "text"):
        asked = replace(made.request, messages=[{"role": "user", "content": content}])
        assert reason(replace(made, request=asked)) is None


@pytest.mark.parametrize(
    ("usage", "code"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}, None),
        ({"total_tokens": 99}, None),
        ({"completion_tokens": 4}, Exclusion.IDS_DISAGREE),
        ({"completion_tokens": 2}, Exclusion.IDS_DISAGREE),
        ({"completion_tokens": 0}, Exclusion.IDS_DISAGREE),
        ({"prompt_tokens": 2, "completion_tokens": 3}, Exclusion.IDS_DISAGREE),
        ({"prompt_tokens": 4}, Exclusion.IDS_DISAGREE),
    ],
)
def test_ids_that_contradict_the_usage_are_not(usage: dict[str, Any] | None, code: Exclusion | None) -> None:
    assert reason(replace(sampled(), usage=usage)) == code


def test_the_ids_of_all_choices_together_are_the_completion_s_tokens() -> None:
    several = [choice(assistant(str(n)), n) for n in range(3)]
    made = turn(REF, request([user("hi")], sampling=SamplingParameters(n=3)), several)
    assert [untrainable_reason(made, one) for one in several] == [None] * 3
    short = replace(made, choices=[replace(several[0], token_ids=[7, 8], logprobs=[-0.5, -0.25]), *several[1:]])
    short = replace(short, usage={"prompt_tokens": 3, "completion_tokens": 9})
    assert [untrainable_reason(short, one) for one in short.choices] == [Exclusion.IDS_DISAGREE] * 3
    without = replace(made, choices=[replace(several[0], token_ids=None), *several[1:]])
    without = replace(without, usage={"completion_tokens": 9})
    assert [untrainable_reason(without, one) for one in without.choices] == [
        Exclusion.IDS_MISSING, Exclusion.IDS_DISAGREE, Exclusion.IDS_DISAGREE,
    ]  # fmt: skip


def test_structured_output_is_not() -> None:
    form = {"type": "json_schema", "json_schema": {}}
    made = sampled()
    assert reason(replace(made, request=replace(made.request, response_format=form))) == Exclusion.STRUCTURED_OUTPUT
    assert reason(replace(made, request=replace(made.request, response_format={"type": "text"}))) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"finish_reason": "length"}, Exclusion.TRUNCATED),
        ({"finish_reason": None}, Exclusion.TRUNCATED),
        ({"token_ids": None}, Exclusion.IDS_MISSING),
        ({"token_ids": []}, Exclusion.IDS_MISSING),
        ({"logprobs": None}, Exclusion.LOGPROBS_MISSING),
        ({"logprobs": [-0.5, -0.25]}, Exclusion.LOGPROBS_MISCOUNTED),
        ({"logprobs": [-0.5, math.nan, -1.0]}, Exclusion.LOGPROBS_NOT_FINITE),
        ({"logprobs": [-0.5, -math.inf, -1.0]}, Exclusion.LOGPROBS_NOT_FINITE),
        ({"logprobs": [-0.5, -9999.0, -1.0]}, Exclusion.LOGPROBS_MISSING),
        ({"logprobs": [-0.5, 0.5, -1.0]}, Exclusion.LOGPROBS_ABOVE_ZERO),
        ({"logprobs": [-0.5, 1e-7, -1.0]}, None),
        ({"token_ids": [7, True, 9]}, Exclusion.IDS_MALFORMED),
        ({"finish_reason": "tool_calls"}, None),
    ],
)
def test_a_choice_needs_its_end_and_a_finite_logprob_for_each_id(
    changes: dict[str, Any], code: Exclusion | None
) -> None:
    made = choice(assistant("hello"), **changes)
    assert untrainable_reason(turn(REF, request([user("hi")]), [made]), made) == code


def test_a_choice_whose_ids_could_not_be_read_is_not() -> None:
    made = sampled()
    assert untrainable_reason(made, made.choices[0], ids_readable=False) == Exclusion.IDS_MALFORMED


@pytest.mark.parametrize("purpose", [Purpose.VAL, Purpose.EVAL, Purpose.NONE])
def test_other_purposes_are_not_trained(purpose: Purpose) -> None:
    # the trajectory's purpose counts, whatever the call's address says
    made = turn(replace(REF, purpose=purpose), request([user("hi")]), [choice(assistant("hello"))])
    assert reason(made) == Exclusion.PURPOSE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": CallState.ABORTED}, Exclusion.NOT_COMPLETE),
        ({"state": CallState.ERRORED}, Exclusion.NOT_COMPLETE),
        ({"confidence": Confidence.AMBIGUOUS}, Exclusion.AMBIGUOUS),
        ({"confidence": Confidence.HINT}, Exclusion.AMBIGUOUS),
        ({"confidence": Confidence.EXACT}, None),
        ({"confidence": Confidence.NEW}, None),
        ({"address": Address(call_kind=CallKind.AUX)}, Exclusion.AUXILIARY),
    ],
)
def test_calls_that_are_broken_uncertain_or_beside_the_way_are_not(
    changes: dict[str, Any], code: Exclusion | None
) -> None:
    assert reason(turn(REF, request([user("hi")]), [choice(assistant("hello"))], **changes)) == code
