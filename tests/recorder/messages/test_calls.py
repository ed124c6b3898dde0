"""What is kept beside a choice, read back out of what the store says of its call."""

from __future__ import annotations

from recorder.messages.calls import CHOICE_EXTRAS, choice_extras


def test_each_choice_has_its_own() -> None:
    meta = {"id": "x", CHOICE_EXTRAS: {"0": {"reasoning": "a"}, "10": {"reasoning": "b"}}}
    assert [choice_extras(meta, index) for index in (0, 1, 10)] == [{"reasoning": "a"}, {}, {"reasoning": "b"}]


def test_a_call_that_says_nothing_of_itself_has_none() -> None:
    assert choice_extras(None, 0) == choice_extras({}, 0) == {}
