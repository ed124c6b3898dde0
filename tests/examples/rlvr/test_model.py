"""The committed model of examples/rlvr: its marks, its size, its words, and prompts and answers that fit the engine."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from examples.making.tokenizer import render
from examples.rlvr.agent import MAX_TOKENS, messages
from examples.rlvr.forms import draw
from examples.rlvr.make_model import LARGEST_BYTES, MAKER, MODEL, missed
from examples.rlvr.making.mixture import mixed
from examples.rlvr.run import EXAMPLE
from examples.rlvr.words import LISTS
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
    [why] = missed({"success": rate, "bytes": 1_000})
    assert "of answers" in why


def test_weights_are_bfloat16_and_small() -> None:
    assert bytes_of_bfloat16(MODEL) < LARGEST_BYTES
    assert sum(path.stat().st_size for path in MODEL.iterdir()) <= LARGEST_BYTES + 10_000  # its notes besides


@pytest.mark.slow
def test_the_committed_tokenizer_is_what_the_recipe_makes(tokenizer: Any) -> None:
    assert_made(tokenizer, MAKER)


def test_a_quoted_word_is_the_same_tokens_where_it_is_asked_for_and_where_it_is_said(tokenizer: Any) -> None:
    """Else a model of this size answers with one of the five by chance."""
    for word in LISTS[6] + LISTS[7]:
        said = set(tokenizer.tokenize(word))
        assert said <= set(tokenizer.tokenize(f'name: text "{word}".'))
        assert said <= set(tokenizer.tokenize(json.dumps({"name": word})))


@settings(max_examples=scaled(200), deadline=None)
@given(st.integers(0, 2**32))
def test_what_it_was_taught_to_say_ends_before_it_is_cut_and_fits_the_engine(tokenizer: Any, seed: int) -> None:
    """What is cut is left out of training, so a flaw that makes an answer long would never become rarer."""
    rng = random.Random(seed)
    form = draw(rng)
    end = 1
    assert len(tokenizer.encode(mixed(form, rng))) + end <= MAX_TOKENS
    context = load_settings(EXAMPLE.folder / "hone.toml", {}).settings.engine.max_model_len
    assert context is not None
    assert len(render(tokenizer, messages(form.prompt()), [], ask=True)) + MAX_TOKENS <= context
