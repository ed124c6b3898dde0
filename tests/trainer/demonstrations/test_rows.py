"""Rendered conversations: only answers are trained, and each ends where the engine would stop."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from examples.helpdesk import make_model
from recorder.messages.trainability import Exclusion
from recorder.states import CallKind, CallState, Confidence
from recorder.views.trajectories.shapes import CallView, FeedbackView, TrajectoryView
from tests.trainer.building import call, choice, trajectory
from trainer.batch.rows import ROW_TOO_LONG
from trainer.demonstrations.chat_template import CannotSplit, ChatTemplate
from trainer.demonstrations.conversations import Conversation
from trainer.demonstrations.rows import demonstrate_conversation, demonstrate_trajectory
from trainer.errors import TrainerError
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis, ImitationExclusion

pytestmark = pytest.mark.slow

BASIS = ImitateBasis("base", max_tokens=4096)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"properties": {"id": {}}}}}]
SYSTEM, USER = {"role": "system", "content": "Help."}, {"role": "user", "content": "Where is 4821?"}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"id": 4821}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "Bonn"}
ANSWER = {"role": "assistant", "content": "In Bonn."}
WHOLE = [SYSTEM, USER, CALLED, RESULT, ANSWER]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(make_model.MODEL)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(make_model.MODEL)


def trained_text(one: Demonstration, tokenizer: Any) -> list[str]:
    """The trained tokens of each row, as text."""
    return [tokenizer.decode(row.token_ids[row.trained]) for row in one.rows]


def of_messages(*messages: dict[str, Any], answers: tuple[int, ...]) -> Conversation:
    return Conversation("row_1", "file:1", messages, TOOLS, answers)


def recorded(**of_choice: Any) -> TrajectoryView:
    """The conversation as another provider's calls have it: without ids."""
    calls: list[CallView] = [
        call(1, (), choice((), message=CALLED, token_ids=None, logprobs=None, **of_choice), messages=WHOLE[:2]),
        call(2, (), choice((), message=ANSWER, token_ids=None, logprobs=None), messages=WHOLE[:4]),
    ]
    calls = [replace(one, prompt_token_ids=None, base_fingerprint=None, tools=TOOLS) for one in calls]
    return trajectory(*calls, messages=WHOLE, tools=TOOLS, main_path=[("call_1", 0), ("call_2", 0)])


def corrected(text: str, call_id: str | None = None, at: float = 1.0, name: str = "demonstration") -> FeedbackView:
    return FeedbackView(name, text, call_id, None, {}, at)


def test_corrections_are_imitated_after_their_calls_prompts_and_the_recorded_answers_are_not(
    template: ChatTemplate, tokenizer: Any
) -> None:
    given = [corrected("In Kiel.", at=1.0), corrected("In Ulm.", "call_1", at=2.0), corrected("In Köln.", at=3.0)]
    view = replace(recorded(), feedback=[*given, corrected("no", name="comment")])
    made = demonstrate_trajectory(view, BASIS, template)
    assert trained_text(made, tokenizer) == ["In Ulm.<|im_end|>", "In Köln.<|im_end|>"]
    assert (made.code, made.is_rendered, made.skipped) == (None, True, [])


def test_a_correction_follows_the_recorded_ids_of_the_prompt_where_they_are_of_this_base(
    template: ChatTemplate, tokenizer: Any
) -> None:
    ids = tokenizer("Another text of the same prompt").input_ids
    first, last = recorded().calls
    last = replace(last, prompt_token_ids=array("i", ids), base_fingerprint="base")
    view = replace(recorded(), calls=[first, last], feedback=[corrected("In Ulm.")])
    (row,) = demonstrate_trajectory(view, BASIS, template).rows
    assert list(row.token_ids[: len(ids)]) == ids
    assert row.trained_tokens == len(row) - len(ids)
    (row,) = demonstrate_trajectory(view, replace(BASIS, base_fingerprint="other"), template).rows
    assert list(row.token_ids[: len(ids)]) != ids


@pytest.mark.parametrize(
    ("change", "text", "code"),
    [
        ({"call_kind": CallKind.AUX}, "In Ulm.", Exclusion.AUXILIARY),
        ({"attribution_confidence": Confidence.AMBIGUOUS}, "In Ulm.", Exclusion.AMBIGUOUS),
        ({"state": CallState.ERRORED}, "In Ulm.", Exclusion.NOT_COMPLETE),
        ({}, '<tool_call>{"name": "look"', ImitationExclusion.TOOL_CALL_UNPARSED),
    ],
)
def test_a_correction_is_not_imitated_where_its_prompt_may_not_be_or_it_is_no_answer(
    change: dict[str, Any], text: str, code: str, template: ChatTemplate
) -> None:
    first, last = recorded().calls
    view = replace(recorded(), calls=[first, replace(last, **change)], feedback=[corrected(text)])
    basis = replace(BASIS, tool_mark=template.tool_mark)
    assert demonstrate_trajectory(view, basis, template).code == code


def test_a_correction_of_a_redacted_answer_is_not_imitated(template: ChatTemplate) -> None:
    first, last = recorded().calls
    hidden = [replace(one, trainable=False, untrainable_reason=Exclusion.REDACTED) for one in last.choices]
    view = replace(recorded(), calls=[first, replace(last, choices=hidden)], feedback=[corrected("In Ulm.")])
    assert demonstrate_trajectory(view, BASIS, template).code == Exclusion.REDACTED


def test_the_answers_are_trained_with_their_end_and_nothing_else(template: ChatTemplate, tokenizer: Any) -> None:
    made = demonstrate_conversation(of_messages(*WHOLE, answers=(2, 4)), BASIS, template)
    assert trained_text(made, tokenizer) == [
        '<tool_call>{"name": "look", "arguments": {"id": 4821}}</tool_call><|im_end|>In Bonn.<|im_end|>'
    ]
    (row,) = made.rows
    given = [{**CALLED, "tool_calls": [{"function": {"name": "look", "arguments": {"id": 4821}}}]}]
    ids = tokenizer.apply_chat_template(
        [SYSTEM, USER, *given, RESULT, ANSWER], tools=TOOLS, tokenize=True, return_dict=False
    )
    assert list(row.token_ids) == ids
    assert (made.code, made.is_rendered, made.trained_tokens) == (None, True, int(row.trained.sum()))


def test_an_answer_of_another_provider_is_rendered_and_its_calls_are_known(
    template: ChatTemplate, tokenizer: Any
) -> None:
    made = demonstrate_trajectory(recorded(), BASIS, template)
    of_file = demonstrate_conversation(of_messages(*WHOLE, answers=(2, 4)), BASIS, template)
    assert [list(row.token_ids) for row in made.rows] == [list(row.token_ids) for row in of_file.rows]
    assert [list(row.trained) for row in made.rows] == [list(row.trained) for row in of_file.rows]
    assert made.rows[0].calls == (("call_1", 0), ("call_2", 0))
    assert made.is_rendered
    without = demonstrate_trajectory(recorded(), BASIS, None)
    assert (without.code, without.rows) == (Exclusion.IDS_MISSING, [])


def test_recorded_ids_are_used_as_they_are(template: ChatTemplate) -> None:
    one = call(1, [5, 6, 7], choice([8, 9], token_ids=array("i", [8, 9])))
    made = demonstrate_trajectory(trajectory(one, main_path=[("call_1", 0)]), BASIS, template)
    assert [list(row.token_ids) for row in made.rows] == [[5, 6, 7, 8, 9]]
    assert not made.is_rendered


def test_what_may_not_be_imitated_is_context_in_a_rendered_row(template: ChatTemplate, tokenizer: Any) -> None:
    made = demonstrate_trajectory(recorded(finish_reason="length"), BASIS, template)
    assert trained_text(made, tokenizer) == ["In Bonn.<|im_end|>"]
    assert [one.code for one in made.skipped] == [Exclusion.TRUNCATED]
    rewritten = replace(recorded(), messages=[SYSTEM, {**USER, "content": "Where?"}, CALLED, RESULT, ANSWER])
    left = demonstrate_trajectory(rewritten, BASIS, template)
    assert (left.rows, left.code) == ([], ImitationExclusion.HISTORY_REWRITTEN)


def test_a_call_that_no_program_can_read_is_never_imitated(template: ChatTemplate) -> None:
    assert template.tool_mark == "<tool_call>"
    basis = replace(BASIS, tool_mark=template.tool_mark)
    said = {"role": "assistant", "content": '<tool_call>{"name": "lo'}
    made = demonstrate_conversation(of_messages(SYSTEM, USER, said, answers=(2,)), basis, template)
    assert (made.code, made.rows) == (ImitationExclusion.TOOL_CALL_UNPARSED, [])


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000])
def test_after_a_call_that_no_program_can_read_an_answer_cannot_be_rendered(
    template: ChatTemplate, arguments: str
) -> None:
    unread = {**CALLED, "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": arguments}}]}
    made = demonstrate_conversation(of_messages(SYSTEM, USER, unread, RESULT, ANSWER, answers=(4,)), BASIS, template)
    assert made.code == ImitationExclusion.CANNOT_BE_SPLIT
    assert "'look'" in str(made.note)


def test_too_long_media_and_no_answer_have_their_reason(template: ChatTemplate) -> None:
    short = replace(BASIS, max_tokens=10)
    assert demonstrate_conversation(of_messages(*WHOLE, answers=(4,)), short, template).code == ROW_TOO_LONG
    assert demonstrate_conversation(of_messages(USER, answers=()), BASIS, template).code == ImitationExclusion.NO_ANSWER
    picture = replace(of_messages(USER, ANSWER, answers=(1,)), has_media=True)
    assert demonstrate_conversation(picture, BASIS, template).code == Exclusion.MEDIA


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "no token that ends the answer"),
        ("{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", "does not follow"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ],
)
def test_what_a_template_cannot_split_is_named_with_the_reason(tmp_path: Path, written: str, why: str) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(written)
    other = ChatTemplate(make_model.MODEL, file)
    with pytest.raises(CannotSplit, match=why):
        other.split([USER, ANSWER], 1, None)
    made = demonstrate_conversation(of_messages(USER, ANSWER, answers=(1,)), BASIS, other)
    assert (made.code, made.rows) == (ImitationExclusion.CANNOT_BE_SPLIT, [])
    assert made.note is not None
    assert why in made.note


def test_a_template_that_forgets_thinking_gives_each_answer_the_context_that_the_engine_would_give_it(
    tmp_path: Path, tokenizer: Any
) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
        "{% if m.reasoning_content and loop.last %}{{ '(' + m.reasoning_content + ')' }}{% endif %}"
        "{{ m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    thought = {**ANSWER, "reasoning_content": "Look it up"}
    made = demonstrate_conversation(
        of_messages(USER, thought, USER, thought, answers=(1, 3)), BASIS, ChatTemplate(make_model.MODEL, file)
    )
    assert trained_text(made, tokenizer) == ["(Look it up)In Bonn.<|im_end|>"] * 2


def test_a_base_without_tokenizer_or_template_says_what_to_set(tiny_base: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no tokenizer"):
        ChatTemplate(tmp_path)
    empty = tmp_path / "empty.jinja"
    empty.write_text("")
    with pytest.raises(TrainerError, match=r"set engine\.chat_template"):
        ChatTemplate(make_model.MODEL, empty)
