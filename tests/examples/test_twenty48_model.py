"""The committed model of examples/twenty48: its marks, its size, and conversations that continue token for token."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from examples.making.tokenizer import render
from examples.twenty48.agent import MAX_TOKENS
from examples.twenty48.episode import begin
from examples.twenty48.game import DIRECTIONS
from examples.twenty48.make_model import LARGEST_WEIGHTS_BYTES, MAKER, MODEL, missed
from examples.twenty48.players import CHATTER, chatty
from examples.twenty48.run import TWENTY48
from examples.twenty48.taught import attempt_from, opening
from proxy.settings.loader import load_settings
from tests.effort import scaled
from tests.examples.committed import assert_made, bytes_of_bfloat16, note


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


def test_the_committed_model_met_its_marks() -> None:
    assert missed(note(MODEL)["measured"]) == []


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_model_that_is_too_bad_or_too_good_misses_them(rate: float) -> None:
    [why] = missed({"model": {"success": rate}, "parameters": 300_000})
    assert "of attempts" in why


def test_weights_are_bfloat16_and_small() -> None:
    assert bytes_of_bfloat16(MODEL) <= LARGEST_WEIGHTS_BYTES


@pytest.mark.slow
def test_the_committed_tokenizer_is_what_the_recipe_makes(tokenizer: Any) -> None:
    assert_made(tokenizer, MAKER)


def test_a_word_is_a_token_and_so_is_a_cell(tokenizer: Any) -> None:
    assert {len(tokenizer.encode(word)) for word in DIRECTIONS} == {1}
    assert len(tokenizer.encode("012\n340\n555")) == 11


def test_what_it_was_taught_to_say_ends_before_it_is_cut(tokenizer: Any) -> None:
    """What is cut is left out of training: talk that always is would cost reward, and never become rarer."""
    end = 1
    assert max(len(tokenizer.encode(said)) for said in (*CHATTER, *DIRECTIONS)) + end <= MAX_TOKENS


def test_the_longest_attempt_fits_the_engine_s_context(tokenizer: Any) -> None:
    nonsense = "zq" * (MAX_TOKENS // 2)  # a token a letter, as far as the agent lets a turn go
    assert len(tokenizer.encode(nonsense)) == MAX_TOKENS
    longest = render(tokenizer, attempt_from(begin(3), lambda episode, rng: nonsense, random.Random(0)), [])
    context = load_settings(TWENTY48.folder / "hone.toml", {}).settings.engine.max_model_len
    assert context is not None
    assert 512 < len(longest) <= context


@settings(max_examples=scaled(20), deadline=None)
@given(st.integers(0, 10_000))
def test_a_turn_s_prompt_begins_with_the_turn_before(tokenizer: Any, seed: int) -> None:
    messages = attempt_from(begin(seed), chatty, random.Random(seed))
    before = render(tokenizer, opening(begin(seed)), [], ask=True)
    for place in range(2, len(messages) - 2, 2):
        asked = render(tokenizer, messages[: place + 2], [], ask=True)
        assert asked[: len(before)] == before
        before = asked
