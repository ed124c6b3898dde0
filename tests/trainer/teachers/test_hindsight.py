"""Hints: what is one, where it stands in a prompt, and what of a hostile text a model can read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.helpdesk import make_model
from recorder.messages.trainability import Exclusion
from recorder.states import Purpose, TrajectoryState
from recorder.views.follow_ups.events import FollowUp, FollowUpKind
from recorder.views.trajectories.shapes import CallView, TrajectoryView
from tests.trainer.building import call, choice, trajectory
from trainer.batch.rows import ROW_TOO_LONG, RowBasis
from trainer.demonstrations.chat_template import CannotSplit, ChatTemplate, OpenPrompt
from trainer.settings import HindsightSettings
from trainer.teachers.hindsight import hindsight_lessons
from trainer.teachers.hint_text import HintPart, hint_parts, write_hint
from trainer.teachers.hinted_prompt import HintExclusion, HintRefused, hinted_prompt
from trainer.teachers.turns import TrajectoryLessons, usable_turns

BASIS = RowBasis("base", ["v3", "v2"], max_age=1, max_tokens=400)
USER = {"role": "user", "content": "Where is 4821?"}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "Bonn"}
ANSWER = {"role": "assistant", "content": "x"}
PART = HintPart("message", "No, it is in Bonn.")


class ToyTemplate:
    """Words are ids. Each prompt ends with 9. `refuses`: roles that may not follow one another."""

    marks: Sequence[str] = ()

    def __init__(self, refuses: tuple[str, str] | None = None) -> None:
        self.refuses = refuses

    def write_prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, options: Mapping[str, Any] | None = None
    ) -> OpenPrompt:
        roles = [one["role"] for one in messages]
        if self.refuses is not None and roles[-2:] == list(self.refuses):
            raise CannotSplit("roles must alternate")
        text = "\n".join(f"{one['role']}: {one['content']}" for one in messages)
        opening = [8, 9] if options and options.get("thinks") is False else [9]
        ids = [10 + len(word) for word in text.split()]
        return OpenPrompt(text, np.array([*ids, *opening], np.int32), np.array(opening, np.int32))


def sampled(number: int, *messages: Mapping[str, Any], prompt: Sequence[int] = (1, 2, 9), **overrides: Any) -> CallView:
    return call(number, prompt, choice([5, 6]), messages=list(messages or [USER]), **overrides)


def of_calls(*calls: CallView, **overrides: Any) -> TrajectoryView:
    return trajectory(*calls, main_path=[(one.id, 0) for one in calls], **overrides)


def lessons(view: TrajectoryView, hints: Any, basis: RowBasis = BASIS, **settings: Any) -> TrajectoryLessons:
    turns = usable_turns(view, basis, view.main_path)
    return hindsight_lessons(view.id, turns, hints, basis, ToyTemplate(), HindsightSettings(**settings))


def follow_up(kind: FollowUpKind, text: str = "No.", **more: Any) -> FollowUp:
    return FollowUp(kind, "call_0", 0, text, 1.0, "traj", **more)


def test_messages_errors_and_comments_are_hints_and_repetitions_or_silence_are_none() -> None:
    events = [follow_up(kind) for kind in FollowUpKind] + [follow_up(FollowUpKind.MESSAGE, "  ")]
    found = hint_parts(events, ["message", "tool_error", "feedback"])
    assert [one.kind for one in found["call_0", 0]] == ["message", "tool_error", "feedback"]
    assert hint_parts(events, ["tool_error"]) == {("call_0", 0): [HintPart("tool_error", "No.")]}


def test_a_turn_with_a_hint_is_a_row_and_its_lesson_is_the_same_answer_after_the_prompt_with_the_hint() -> None:
    view = of_calls(
        sampled(0), sampled(1, prompt=[1, 2, 9, 5, 6, 7, 9]), sampled(2, prompt=[1, 2, 9, 5, 6, 7, 9, 3, 9])
    )
    made = lessons(view, {("call_0", 0): [PART], ("call_1", 0): [PART, PART]}, clip=0.5, teacher="base")
    (one,) = made.rows  # the second answer continues the first
    assert one.row.calls == (("call_0", 0), ("call_1", 0))
    assert one.row.token_ids[one.row.trained].tolist() == [5, 6, 5, 6]
    assert np.isfinite(one.row.behaviour[one.row.trained]).all()
    assert (one.lesson.teacher, one.lesson.clip) == ("base", 0.5)
    assert [row.token_ids[row.trained].tolist() for row in one.lesson.asked] == [[5, 6], [5, 6]]
    assert len(one.lesson.asked[1]) > len(one.lesson.asked[0])
    for row in (one.row, *one.lesson.asked):
        np.testing.assert_allclose(row.temperature[row.trained], 0.7, rtol=1e-6)
    assert not made.skipped


@pytest.mark.parametrize(
    ("of_call", "of_trajectory"),
    [
        ({"version_id": "v2", "choices": [choice([5], logprobs=None)]}, {}),
        ({"base_fingerprint": "another"}, {}),
        ({"version_id": "v1"}, {}),
        ({"choices": [choice([5], reason=Exclusion.REDACTED)]}, {}),
        ({}, {"purpose": Purpose.VAL}),
        ({}, {"state": TrajectoryState.ERRORED}),
        ({}, {"drift_set_at": 1.0}),
    ],
)
def test_what_no_ratio_can_be_computed_of_or_is_measured_has_no_lesson(of_call: Any, of_trajectory: Any) -> None:
    assert usable_turns(of_calls(sampled(0)), BASIS, [("call_0", 0)])
    assert usable_turns(of_calls(replace(sampled(0), **of_call), **of_trajectory), BASIS, [("call_0", 0)]) == []


def test_only_answers_of_the_main_path_that_are_asked_for_are_taken_with_their_age() -> None:
    view = of_calls(sampled(0, version_id="v2"), sampled(1))
    (one,) = usable_turns(view, BASIS, {("call_0", 0), ("call_0", 1), ("call_7", 0)})
    assert (one.key, one.turn.age) == (("call_0", 0), 1)
    assert usable_turns(replace(view, main_path=[("call_1", 0)]), BASIS, {("call_0", 0)}) == []


def test_what_gets_too_long_or_takes_no_hint_is_named() -> None:
    hints = {("call_0", 0): [replace(PART, text="no " * 500)]}
    found = lessons(of_calls(sampled(0)), hints)
    assert [one.code for one in found.skipped] == [HintExclusion.HINT_TOO_LONG]
    assert not found.rows
    assert len(lessons(of_calls(sampled(0)), hints, hint_chars=30).rows) == 1
    short = replace(BASIS, max_tokens=3)
    assert [one.code for one in lessons(of_calls(sampled(0)), hints, short).skipped] == [ROW_TOO_LONG]
    other = sampled(0, prompt=[1, 2, 3])
    assert [one.code for one in lessons(of_calls(other), hints).skipped] == [HintExclusion.PROMPT_DIFFERS]
    unthinking = sampled(0, prompt=[1, 2, 8, 9], rest={"chat_template_kwargs": {"thinks": False}})
    assert hinted_prompt(unthinking, "hint", ToyTemplate()).tolist()[-2:] == [8, 9]


def test_a_hint_is_a_message_of_its_own_or_the_end_of_the_last_one_of_a_user_or_tool() -> None:
    template = ToyTemplate(refuses=("tool", "user"))
    seen: list[str] = []

    class Watched(ToyTemplate):
        def write_prompt(self, *given: Any) -> OpenPrompt:
            found = super().write_prompt(*given)
            seen.append(found.text)
            return found

    hinted_prompt(sampled(0), "hint", Watched())
    assert seen[-1] == "user: Where is 4821?\nuser: hint"
    hinted_prompt(sampled(0, USER, ANSWER, RESULT), "hint", Watched(template.refuses))
    assert seen[-1] == "user: Where is 4821?\nassistant: x\ntool: Bonn\n\nhint"
    with pytest.raises(HintRefused):
        hinted_prompt(sampled(0, ANSWER), "hint", ToyTemplate(("assistant", "user")))


MARKS = ("<|im_start|>", "<|im_end|>", "<tool_call>")


@given(st.text(max_size=200), st.lists(st.sampled_from([*MARKS, "<<<END-HONE-RECORD>>>", "\n", '"}']), max_size=6))
def test_no_text_closes_the_fence_or_holds_a_mark_of_the_template_and_all_of_it_can_be_read(
    text: str, hostile: list[str]
) -> None:
    whole = "".join([text, *hostile, text])
    lines = write_hint([HintPart("feedback", whole, {"name": "x", "value": whole})], 100_000, MARKS).split("\n")
    assert [line for line in lines if line.startswith("<<<")] == ["<<<HONE-RECORD>>>", "<<<END-HONE-RECORD>>>"]
    assert len(lines) == 5
    assert not any(mark in line for mark in MARKS for line in lines)
    assert json.loads(lines[2])["text"] == whole


def test_long_texts_are_cut_each_to_its_share() -> None:
    text = write_hint([HintPart("message", "a" * 500), HintPart("critique", "b" * 20)], 100)
    assert text.count("a" * 50) == 1
    assert "a" * 51 not in text
    assert "450 characters cut off" in text
    assert "b" * 20 in text


@pytest.mark.slow
def test_a_real_template_writes_the_hint_and_its_tokenizer_finds_no_mark_in_it() -> None:
    template = ChatTemplate(make_model.MODEL)
    assert "<tool_call>" in template.marks
    prompt = template.write_prompt([USER], None)
    recorded = replace(sampled(0), prompt_token_ids=array("i", prompt.ids.tolist()))
    hint = write_hint([HintPart("message", "<tool_call>" + "".join(template.marks))], 4000, template.marks)
    found = template.decode(hinted_prompt(recorded, hint, template).tolist())
    assert hint in found
    assert found.endswith(template.decode(prompt.opening.tolist()))
    assert found.index("4821") < found.index("HONE-RECORD")
    for mark in template.marks:
        assert found.count(mark) <= prompt.text.count(mark) + 3  # of the hint's own message
    assert template.encode(hint).tolist() == template.encode(template.decode(template.encode(hint).tolist())).tolist()
