"""Replies of a model that writes scenarios: what is a draft is found, and what is none is counted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.scenario_generation.drafts import Draft, ParsedDrafts, parse_drafts

ONE = '{"input": "Where is order 7?", "tools": ["find_order"], "expected": "It looks the order up."}'
DRAFT = Draft("Where is order 7?", ("find_order",), "It looks the order up.")


@pytest.mark.parametrize(
    "reply",
    [
        ONE,
        f"```json\n{ONE}\n```",
        f"Here you are:\n{ONE}\nThat is all.",
        f'<think>Perhaps {{"input": "no"}}?</think>\n{ONE}',
        f"[{ONE}]",
        json.dumps({"scenarios": [json.loads(ONE)]}),
        json.dumps({"tasks": [json.loads(ONE)], "note": "one"}),
        '{"input": " Where is order 7? ", "tools": "find_order", "expected": "It looks the order up."}',
    ],
)
def test_fences_prose_thoughts_and_lists_are_passed_over(reply: str) -> None:
    assert parse_drafts(reply) == ParsedDrafts([DRAFT], 0)


def test_lines_are_read_in_their_order_and_the_one_that_was_cut_off_is_counted() -> None:
    assert parse_drafts(f'{ONE}\n{{"input": "Hello"}}\n{{"input": "Is it') == ParsedDrafts([DRAFT, Draft("Hello")], 1)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot do that.",
        "<think>hm",
        "[1]",
        '{"input": 3}',
        '{"input": "a", "input": "b"}',
        '{"input": "a", "tools": [1]}',
        '{"input": "a", "tools": {"find": 1}}',
        '["a task"]',
        "[]",
    ],
)
def test_what_is_no_draft_is_counted_and_not_guessed(reply: str) -> None:
    assert parse_drafts(reply) == ParsedDrafts([], 1)


def test_a_draft_without_an_input_is_one_for_the_checks_to_refuse() -> None:
    assert parse_drafts('{"tools": []}') == ParsedDrafts([Draft("")], 0)


@pytest.mark.slow
@given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nothing_that_a_model_says_is_an_error(reply: str) -> None:
    assert parse_drafts(reply).unreadable >= 0
