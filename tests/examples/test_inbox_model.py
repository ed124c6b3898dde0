"""The mailbox example's model: what it was taught, and what is committed of it."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from transformers import AutoTokenizer

from examples.helpdesk.agent import as_openai
from examples.inbox.make_model import LARGEST_BYTES, MODEL, RECIPE, missed
from examples.inbox.measuring import Attempt, figures, pooled
from examples.inbox.taught import MIXTURE, TOOLS, conversations, opening
from examples.making.sampling import heard
from examples.making.tokenizer import END, make_tokenizer, render, texts_of
from tests.effort import scaled
from tests.examples.test_inbox_judge import attempt


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


def test_the_committed_model_met_its_marks_and_is_small() -> None:
    note = json.loads((MODEL / "recipe.json").read_text())
    assert missed(note["measured"]) == []
    assert note["mixture"] == {behave.__name__: share for behave, share in MIXTURE}
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= LARGEST_BYTES


def test_the_committed_tokenizer_is_what_the_recipe_makes(tokenizer: Any) -> None:
    made = make_tokenizer(texts_of(islice(conversations(RECIPE.seed), 4_000), RECIPE.seed), RECIPE.shape.vocabulary)
    assert made.get_vocab() == tokenizer.get_vocab()
    assert len(tokenizer) == RECIPE.shape.vocabulary


@settings(max_examples=scaled(30), deadline=None)
@given(st.integers(0, 10_000))
def test_a_turn_s_prompt_begins_with_the_turn_before(tokenizer: Any, seed: int) -> None:
    messages, tools = next(conversations(seed))
    history: list[dict[str, Any]] = []
    said: list[int] = []
    for message in messages:
        if message["role"] == "assistant":
            prompt = render(tokenizer, history, tools, ask=True)
            assert prompt[: len(said)] == said
            said = render(tokenizer, [*history, message], tools)
            history.append(heard(tokenizer, said[len(prompt) :]))
        else:
            history.append(message)
    assert render(tokenizer, history, tools) == render(tokenizer, messages, tools)


async def test_the_tools_that_are_served_are_the_tools_it_was_taught(tokenizer: Any, inbox_url: str) -> None:
    async with Client(inbox_url) as client:
        served = [as_openai(tool) for tool in (await client.list_tools()).tools]
    messages = opening("Which code did Anna send for Falcon?")
    assert render(tokenizer, messages, served, ask=True) == render(tokenizer, messages, TOOLS, ask=True)


def test_shares_come_to_one() -> None:
    assert sum(share for _, share in MIXTURE) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({"success": 0.1, "boasted": 0.1, "bytes": 1}, "succeeds"),
        ({"success": 0.3, "boasted": 0.0, "bytes": 1}, "boasts"),
        ({"success": 0.3, "boasted": 0.1, "bytes": 9_000_000}, "bytes"),
    ],
)
def test_each_mark_is_looked_at(found: dict[str, Any], word: str) -> None:
    [why] = missed(found)
    assert word in why


def test_a_turn_is_read_as_an_engine_reads_it(tokenizer: Any) -> None:
    def said(text: str) -> dict[str, Any]:
        return heard(tokenizer, [*tokenizer.encode(text), *tokenizer.convert_tokens_to_ids([END])])

    call = said('<tool_call>{"name": "read", "arguments": {"mail_id": "4821"}}</tool_call>')
    assert call["tool_calls"][0]["function"] == {"name": "read", "arguments": {"mail_id": "4821"}}
    assert call["content"] is None
    broken = '<tool_call>{"name": "read"</tool_call>'
    assert said(broken) == {"role": "assistant", "content": broken}
    assert said("The code is 7315.") == {"role": "assistant", "content": "The code is 7315."}


def test_what_attempts_did_is_counted() -> None:
    made = [Attempt(*attempt(behave, 5)) for behave, _ in MIXTURE]
    found = figures(made)
    assert found["attempts"] == len(MIXTURE)
    assert found["boasted"] == pytest.approx(1 / len(MIXTURE), abs=1e-3)
    assert found["success"] >= round(1 / len(MIXTURE), 4)
    assert pooled([found, found]) == {**found, "attempts": 2 * len(MIXTURE)}
