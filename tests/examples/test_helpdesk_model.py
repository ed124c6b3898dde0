"""The demo's tokenizer, chat template and committed weights."""

from __future__ import annotations

import json
import re
import struct
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.helpdesk.agent import SYSTEM, as_openai
from examples.helpdesk.make_model import LARGEST_BYTES, LEAST_RIGHT_DIGITS, MAKER, MODEL, missed
from examples.helpdesk.making.conversations import TOOLS, Message, conversations
from examples.helpdesk.making.measuring import measure_copying
from examples.helpdesk.orders import demo_orders
from examples.making.tokenizer import CHAT_TEMPLATE, END, make_tokenizer, render
from examples.making.training import IGNORED, Recipe, labelled
from tests.effort import scaled

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


def echoed(text: str) -> Message:
    """An assistant's turn as an engine parses it and an agent sends it back: JSON read and written twice."""
    calls = [json.loads(call) for call in _CALL.findall(text)]
    if not calls:
        return {"role": "assistant", "content": text}
    functions = [{"name": call["name"], "arguments": json.loads(json.dumps(call["arguments"]))} for call in calls]
    return {
        "role": "assistant",
        "content": text.partition("<tool_call>")[0] or None,
        "tool_calls": [{"id": "x", "type": "function", "function": function} for function in functions],
    }


def test_everything_needed_is_there_and_small() -> None:
    names = {file.name for file in MODEL.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= names
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= LARGEST_BYTES


def test_weights_are_bfloat16_and_of_the_stated_size() -> None:
    with (MODEL / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    assert {entry["dtype"] for entry in tensors} == {"BF16"}
    assert max(entry["data_offsets"][1] for entry in tensors) == 2 * 1_722_304


def test_the_committed_model_met_its_marks() -> None:
    assert missed(json.loads((MODEL / "recipe.json").read_text())["measured"]) == []


def test_the_committed_tokenizer_is_what_the_recipe_makes(tokenizer: Any) -> None:
    recipe = Recipe()
    made = make_tokenizer(MAKER.texts(recipe.seed), recipe.shape.vocabulary)
    assert made.get_vocab() == tokenizer.get_vocab()
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert len(tokenizer) == recipe.shape.vocabulary
    assert tokenizer.eos_token == END


@given(st.text("0123456789", min_size=1, max_size=9))
def test_every_digit_is_a_token(tokenizer: Any, digits: str) -> None:
    ids = tokenizer.encode(digits)
    assert [tokenizer.decode([token]) for token in ids] == list(digits)


def test_tool_call_marks_are_tokens_that_decoding_keeps(tokenizer: Any) -> None:
    ids = tokenizer.encode("<tool_call>{}</tool_call>")
    assert [tokenizer.decode([ids[0]]), tokenizer.decode([ids[-1]])] == ["<tool_call>", "</tool_call>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>{}</tool_call>"


@settings(max_examples=scaled(30), deadline=None)
@given(st.integers(0, 10_000))
def test_a_turn_s_prompt_begins_with_the_turn_before(tokenizer: Any, seed: int) -> None:
    messages = next(conversations(seed))
    history: list[Message] = []
    said: list[int] = []
    for message in messages:
        if message["role"] == "assistant":
            prompt = render(tokenizer, history, TOOLS, ask=True)
            assert prompt[: len(said)] == said
            whole = render(tokenizer, [*history, message], TOOLS)
            assert whole[: len(prompt)] == prompt
            sampled = whole[len(prompt) :]
            said = whole
            history.append(echoed(tokenizer.decode(sampled).removesuffix(END)))
        else:
            history.append(message)
    assert render(tokenizer, history, TOOLS) == render(tokenizer, messages, TOOLS)


def test_arguments_render_alike_as_a_dict_and_as_a_string(tokenizer: Any) -> None:
    def turn(arguments: object) -> list[Message]:
        call = {"id": "x", "type": "function", "function": {"name": "find_order", "arguments": arguments}}
        return [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]

    assert render(tokenizer, turn({"order_id": "4821"}), TOOLS) == render(
        tokenizer, turn('{"order_id": "4821"}'), TOOLS
    )


@pytest.mark.parametrize("absent", [{"content": None}, {"content": ""}, {}])
def test_no_content_in_any_form_is_no_text(tokenizer: Any, absent: Message) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "find_order", "arguments": {"order_id": "1"}}}
    text = tokenizer.apply_chat_template([{"role": "assistant", **absent, "tool_calls": [call]}], tokenize=False)
    wanted = '<tool_call>{"name": "find_order", "arguments": {"order_id": "1"}}</tool_call>'
    assert text == f"<|im_start|>assistant\n{wanted}<|im_end|>"


async def test_the_tools_that_are_served_are_the_tools_it_was_taught(tokenizer: Any, mcp_url: str) -> None:
    async with Client(mcp_url) as client:
        served = [as_openai(tool) for tool in (await client.list_tools()).tools]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Where is my order 4821?"}]
    texts = [
        tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        for tools in (served, TOOLS)
    ]
    assert texts[0] == texts[1]
    assert "find_order(order_id) track_parcel(tracking)" in texts[0]


def test_an_ideal_conversation_takes_about_150_tokens(tokenizer: Any) -> None:
    lengths = [len(render(tokenizer, m, TOOLS)) for m in islice(conversations(0), 100) if len(m) == 7]
    assert 130 <= sum(lengths) / len(lengths) <= 170


def test_only_the_assistant_is_learned_from(tokenizer: Any) -> None:
    messages = next(m for m in conversations(0) if len(m) == 7)
    ids, labels = labelled(tokenizer, messages, TOOLS)
    assert len(ids) == len(labels)
    learned = tokenizer.decode([label for label in labels if label != IGNORED])
    assert learned.count(END) == 3
    assert "<|im_start|>" not in learned
    assert learned.endswith(messages[-1]["content"] + END)


@pytest.mark.slow
def test_the_committed_weights_copy_the_digits_of_orders_they_never_saw(tokenizer: Any) -> None:
    torch.set_num_threads(1)  # two threads stall where another process is busy
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype="float32")
    copied = measure_copying(model, tokenizer, demo_orders().heldout[:20], seed=1)
    assert {name for name, share in copied.items() if name.endswith("right") and share < LEAST_RIGHT_DIGITS} == set()
