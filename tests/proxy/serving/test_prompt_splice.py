"""What is new behind a sampled turn, under real templates: the stitched prompt says what a rendered one would."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.serving.prompt_splice import Fallback, mark_message, new_ids, new_part_start, render_body, seen_by_template
from tests.effort import scaled
from tests.templates.rendering import ENDS, Answer, Templated

TOOL = {
    "type": "function",
    "function": {
        "name": "find_order",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
    },
}
TEMPLATES = {name: Templated(name, [TOOL]) for name in ("demo", "qwen3", "llama3", "hermes")}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=24) | st.sampled_from(
    ["A", "<|im_end|>", "<|im_start|>assistant\nyes", "<|eot_id|>", "<tool_response>", "</think>", '{"a":  1}', "  "]
)
ANSWERS = st.builds(
    Answer,
    text=st.sampled_from(["Let me see.", "It arrives on Monday.", "é漢字", "B"]),
    tool=st.none() | st.just("find_order"),
    arguments=st.just({"order_id": "4821"}) | st.dictionaries(st.sampled_from("abc"), st.integers() | st.text("x y")),
    thinking=st.none() | st.sampled_from(["hm", "first this\nthen that", ""]),
    compact=st.booleans(),
    padded=st.booleans(),
)


def same(text: str) -> str:
    """A text without what continuity preserves: thinking, spacing."""
    return re.sub(r"\s", "", re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL))


async def stitched(template: Templated, answers: list[Answer], replies: list[str], system: str) -> tuple[Any, Any]:
    """A conversation turn by turn, as continuity sends it: the last prompt, and all messages it stands for."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": "hello"}]
    prompt = await template.render(messages, ask=True)
    for at, (answer, reply) in enumerate(zip(answers, replies, strict=True)):
        sampled = template.sampled(answer)
        echo = answer.message(f"call_{at}")
        new = {"role": "tool", "tool_call_id": f"call_{at}"} if answer.tool else {"role": "user"}
        messages = [*messages, echo, new | {"content": reply}]
        before = len(messages) - 2
        more = await new_ids(template, messages, before, sampled[-1])
        prompt = [*prompt, *sampled, *more]
        rendered, new_text = template.text(messages, ask=True), template.decode(more)
        assert rendered.endswith(ENDS[template.name] + new_text)
    return prompt, messages


@pytest.mark.parametrize("name", list(TEMPLATES))
@given(turns=st.lists(st.tuples(ANSWERS, TEXT), min_size=1, max_size=4), system=TEXT)
@example(turns=[(Answer("no", thinking="hm"), "A"), (Answer("no", thinking="hm"), "B")], system="x")
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_stitched_prompt_says_what_a_rendered_one_would(
    name: str, turns: list[tuple[Answer, str]], system: str
) -> None:
    template = TEMPLATES[name]
    answers, replies = [a for a, _ in turns], [r for _, r in turns]
    if name in ("llama3", "hermes"):  # their templates have no place for text beside a call
        answers = [a if a.tool is None else Answer("", a.tool, a.arguments, compact=a.compact) for a in answers]
    try:
        prompt, messages = await stitched(template, answers, replies, system)
    except Fallback:  # allowed only where messages hold what looks like a template's own marks
        if any("<" in text for text in (*replies, system)):
            return
        raise
    assert same(template.decode(prompt)) == same(template.text(messages, ask=True))


@pytest.mark.parametrize("name", list(TEMPLATES))
async def test_what_templates_do_to_the_past_is_survived(name: str) -> None:
    template = TEMPLATES[name]
    thinks = Answer("It came.", thinking="hm") if name != "llama3" else Answer("It came.", padded=True)
    calls = Answer("", "find_order", {"order_id": "1"}, compact=True)
    prompt, messages = await stitched(template, [calls, thinks, thinks], ["shipped", "and?", "ok?"], "s")
    rendered = await template.render(messages, ask=True)
    if name != "demo":  # whose template writes what its model was taught to write, but for the spaces of the JSON
        assert prompt != rendered
    assert template.decode(prompt).count(thinks.raw(name)) == 2
    assert calls.raw(name) in template.decode(prompt)


async def test_qwen3_drops_thinking_once_a_user_speaks() -> None:
    template = TEMPLATES["qwen3"]
    answer = Answer("It came.", thinking="hm")
    history = [{"role": "user", "content": "hi"}, answer.message()]
    assert "hm" in template.text(history, ask=False)
    assert "hm" not in template.text([*history, {"role": "user", "content": "and?"}], ask=True)


async def test_a_turn_that_the_template_does_not_end_with_the_sampled_token_is_not_gone_on_from() -> None:
    template = TEMPLATES["hermes"]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "?"},
    ]
    with pytest.raises(Fallback, match="render_not_a_prefix"):
        await new_ids(template, messages, 1, template.tokenizer.pad_token_id)
    # an end token that stands earlier in the text is not the turn's end
    messages[0]["content"] = "hi <|pad|>"
    with pytest.raises(Fallback, match="render_not_a_prefix"):
        await new_ids(template, messages, 1, template.tokenizer.pad_token_id)


# --- the parts


def test_the_new_part_begins_behind_the_last_end_that_both_share() -> None:
    assert new_part_start([1, 9, 2, 9, 3, 4, 9], [1, 9, 2, 9, 3, 5, 9], end=9, turns=2) == 4
    assert new_part_start([1, 9, 2, 9, 3, 4, 9], [1, 9, 2, 9, 3, 5, 9], end=9, turns=1) is None
    assert new_part_start([1, 9, 2, 9], [1, 9, 2, 9], end=9, turns=2) is None
    assert new_part_start([1, 2], [3, 4], end=9, turns=0) is None


@given(st.text(max_size=5))
def test_a_marked_message_differs_from_its_first_character_on(text: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "1", "content": text}]
    [first, other] = mark_message(messages, 1)
    assert first is messages[0]
    assert not text.lstrip().startswith(other["content"])
    assert {**other, "content": text} == messages[1]
    parts = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    assert not text.lstrip().startswith(mark_message(parts, 0)[0]["content"][0]["text"])


def test_what_a_template_sees_tells_requests_apart() -> None:
    base: dict[str, Any] = {"model": "a", "messages": [], "tools": [TOOL]}
    seen = seen_by_template(base)
    assert seen == seen_by_template(base | {"model": "b", "temperature": 0.2, "tool_choice": "auto", "stop": ["x"]})
    assert seen == seen_by_template(base | {"response_format": {"type": "text"}, "chat_template_kwargs": None})
    others: list[dict[str, Any]] = [
        {"tools": []},
        {"tool_choice": "none"},
        {"chat_template_kwargs": {"a": 1}},
        {"anything": 1},
    ]
    assert len({seen, *(seen_by_template(base | other) for other in others)}) == 5


def test_a_render_is_asked_for_as_the_completion_would_be_rendered() -> None:
    chat: dict[str, Any] = {"tools": [TOOL], "reasoning_effort": "none", "documents": [{"a": 1}], "temperature": 1}
    arguments = {"x": 1, "enable_thinking": False, "reasoning_effort": "none", "documents": [{"a": 1}]}
    assert render_body(chat | {"chat_template_kwargs": {"x": 1}}, [], "m", ask=True) == {
        "model": "m",
        "messages": [],
        "tools": [TOOL],
        "add_generation_prompt": True,
        "chat_template_kwargs": arguments,
    }
    asked = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
    kept = render_body(asked, [], "m", ask=False)
    assert kept["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "low"}
