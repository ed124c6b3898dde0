"""New answers to a recorded call: the text of an answer, its differences, and the name that links both calls."""

from __future__ import annotations

import pytest

from recorder.ids import check_external, new_id
from recorder.views.comparison.new_answers import PLACES, _names, answer_text, compare_answers, repeated_call_id

CALLED = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id": 1}'}}


def test_an_answer_is_its_text_and_the_tools_that_it_calls() -> None:
    assert answer_text(None) == ""
    assert answer_text({"role": "assistant", "content": "Wait.", "tool_calls": [CALLED]}) == (
        'Wait.\ncalls find {"id": 1}'
    )


def test_an_equal_answer_has_no_changes_and_a_very_long_one_is_not_compared() -> None:
    [same] = compare_answers("on Monday", [(0, {"role": "assistant", "content": "on Monday"}, "stop")])
    assert [part.kind for part in same.changes] == ["same"]
    [long] = compare_answers("a b " * 600, [(0, {"role": "assistant", "content": "a c " * 600}, "length")])
    assert [part.kind for part in long.changes] == ["removed", "added"]


def test_every_name_is_a_legal_id_and_leads_back_to_the_call() -> None:
    call_id = new_id("call")
    names = _names(call_id)
    assert len(set(names)) == PLACES
    assert all(repeated_call_id(check_external(name, "a name")) == call_id for name in names)


@pytest.mark.parametrize("name", [None, "", "one", "ask-again:", "ask-again:call_1", "ask-again:call_1:x", ":1"])
def test_other_ids_ask_no_call_again(name: str | None) -> None:
    assert repeated_call_id(name) is None
