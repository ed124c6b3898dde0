"""Success by code: what a prompt asks for, whatever its criteria say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from examples.rlvr.checks import share_met, solved

PROMPT = 'Write JSON, keys in this order. open: true. size: number from 2 to 4. item: text "lamp".'


def attempt(answer: str | None, prompt: str = PROMPT) -> SimpleNamespace:
    return SimpleNamespace(answer=answer, scenario={"input": prompt, "rubric": []})


@pytest.mark.parametrize(
    ("answer", "success"),
    [
        ('{"open": true, "size": 3, "item": "lamp"}', 1.0),
        ('{"open": true, "size": 5, "item": "lamp"}', 0.0),
        (None, 0.0),
    ],
)
def test_an_answer_succeeds_where_it_is_what_was_asked(answer: str | None, success: float) -> None:
    assert solved(attempt(answer)) == success


def test_an_attempt_at_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no scenario"):
        solved(SimpleNamespace(answer="x", scenario=None))


def test_a_criterion_that_code_does_not_know_is_not_met() -> None:
    assert share_met(["The answer has exactly 1 lines.", "The answer sounds friendly."], "lamp") == 0.5
