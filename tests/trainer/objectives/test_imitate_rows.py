"""Which recorded answers are imitated, and why others are context."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.messages.calls import SamplingParameters
from recorder.messages.trainability import Exclusion
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.states import CallKind, CallState, Confidence, Origin, Purpose, TrajectoryState
from recorder.views.trajectories.shapes import ScenarioView
from tests.trainer.building import call, choice, trajectory
from trainer.batch.recorded_text import TextCheck
from trainer.batch.rows import ROW_TOO_LONG
from trainer.objectives.imitate_rows import (
    ImitateBasis,
    ImitationExclusion,
    exact_rows,
    has_unparsed_call,
    why_no_candidate,
)

BASIS = ImitateBasis("base", max_tokens=12)
PROMPT, ANSWER = [5, 6, 7], [8, 9]


def tool_call(arguments: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": arguments}}],
    }


@pytest.mark.parametrize(
    "stored",
    [
        None, Exclusion.TEMPERATURE, Exclusion.TOP_P, Exclusion.TOP_K, Exclusion.MIN_P, Exclusion.STRUCTURED_OUTPUT,
        Exclusion.DISTORTED, Exclusion.LOGPROBS_MISSING, Exclusion.LOGPROBS_MISCOUNTED, Exclusion.LOGPROBS_NOT_FINITE,
    ],
)  # fmt: skip
def test_an_answer_needs_no_logprobs_and_no_sampling_parameters_and_may_be_of_any_version(stored: str | None) -> None:
    sampled = choice(ANSWER, reason=stored, logprobs=None)
    one = call(1, PROMPT, sampled, sampling=SamplingParameters(temperature=0.0), version_id="of nobody")
    (row,), skipped = exact_rows(trajectory(one, mixed=True), BASIS)
    assert skipped == []
    assert list(row.token_ids) == PROMPT + ANSWER
    assert [at for at, trained in enumerate(row.trained) if trained] == [3, 4]
    assert row.temperature[3] == 1.0
    assert list(row.age) == [-1] * 5
    assert row.behaviour[3] != row.behaviour[3]  # NaN: it has no ratio


def test_a_turn_that_continues_a_row_is_in_it_and_another_begins_a_row() -> None:
    first, second = call(1, PROMPT, choice(ANSWER)), call(2, [*PROMPT, *ANSWER, 3], choice([4]))
    other = call(3, [9, 9], choice([4]))
    rows, _ = exact_rows(trajectory(first, second, other), BASIS)
    assert [list(row.token_ids) for row in rows] == [[*PROMPT, *ANSWER, 3, 4], [9, 9, 4]]
    assert [row.trained_tokens for row in rows] == [3, 1]


@pytest.mark.parametrize(
    ("changed", "of_choice", "code"),
    [
        ({}, {"finish_reason": "length"}, Exclusion.TRUNCATED),
        ({}, {"finish_reason": "length", "untrainable_reason": "top_p", "trainable": False}, Exclusion.TRUNCATED),
        ({}, {"trainable": False, "untrainable_reason": "redacted"}, Exclusion.REDACTED),
        ({}, {"trainable": False, "untrainable_reason": "ids_disagree"}, Exclusion.IDS_DISAGREE),
        ({}, {"trainable": False, "untrainable_reason": "not_selected"}, Exclusion.NOT_SELECTED),
        ({"usage": {"completion_tokens": 3}}, {}, Exclusion.IDS_DISAGREE),
        ({}, {"message": tool_call("{no")}, ImitationExclusion.TOOL_CALL_UNPARSED),
        ({}, {"message": tool_call("[1]")}, ImitationExclusion.TOOL_CALL_UNPARSED),
        ({"base_fingerprint": "other"}, {}, Exclusion.BASE_FINGERPRINT),
        ({}, {"token_ids": None}, Exclusion.IDS_MISSING),
        ({"state": CallState.ABORTED}, {}, Exclusion.NOT_COMPLETE),
        ({"superseded_by": "call_9"}, {}, Exclusion.SUPERSEDED),
        ({"call_kind": CallKind.AUX}, {}, Exclusion.AUXILIARY),
        ({"attribution_confidence": Confidence.HINT}, {}, Exclusion.AMBIGUOUS),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {}, Exclusion.MEDIA),
        ({"prompt_token_ids": None}, {}, Exclusion.IDS_MISSING),
    ],
)
def test_what_is_never_imitated(changed: dict[str, Any], of_choice: dict[str, Any], code: str) -> None:
    rows, skipped = exact_rows(trajectory(call(1, PROMPT, choice(ANSWER, **of_choice), **changed)), BASIS)
    assert (rows, [one.code for one in skipped]) == ([], [code])


def test_an_answer_that_does_not_fit_or_whose_ids_say_something_else_is_not_imitated() -> None:
    rows, skipped = exact_rows(trajectory(call(1, list(range(11)), choice(ANSWER))), BASIS)
    assert (rows, [one.code for one in skipped]) == ([], [ROW_TOO_LONG])
    text = TextCheck(lambda ids: ["something else"])
    rows, skipped = exact_rows(trajectory(call(1, PROMPT, choice(ANSWER))), ImitateBasis("base", 12, text))
    assert (rows, [one.code for one in skipped]) == ([], [Exclusion.IDS_DISAGREE])


def test_the_beginning_of_a_tool_call_in_a_text_is_a_call_that_was_not_parsed() -> None:
    said = {"role": "assistant", "content": 'I look. <tool_call>{"name": "lo'}
    assert has_unparsed_call(said, "<tool_call>")
    assert not has_unparsed_call(said, None)
    assert not has_unparsed_call(tool_call('{"a": 1}'), "<tool_call>")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, None),
        ({"purpose": Purpose.VAL}, Exclusion.PURPOSE),
        ({"state": TrajectoryState.ERRORED}, TrajectoryState.ERRORED),
        ({"selection": "sibling"}, Exclusion.NOT_SELECTED),
        ({"origin": Origin.SHADOW}, Exclusion.NOT_SELECTED),
        ({"drift_set_at": 1.0}, DRIFT_SET),
        ({"scenario": ScenarioView("s", "val", "x", None, None)}, ImitationExclusion.HELD_OUT_SCENARIO),
        ({"scenario": ScenarioView("s", "train", "x", None, None)}, None),
    ],
)
def test_which_trajectories_are_no_candidates(changed: dict[str, Any], code: str | None) -> None:
    assert why_no_candidate(trajectory(**changed)) == code
