"""How a turn differs from another, in words and argument by argument."""

from __future__ import annotations

from recorder.views.comparison.alignment import (
    Argument,
    ConversationTurn,
    ToolExchange,
    compare_calls,
    list_differences,
)


def asked(name: str, result: str | None = None, **arguments: str) -> ToolExchange:
    return ToolExchange(name, tuple(Argument(key, value, is_json=False) for key, value in arguments.items()), result)


def turn(*calls: ToolExchange, text: str = "", thinking: str = "") -> ConversationTurn:
    return ConversationTurn("assistant", text, thinking, calls)


def test_equal_turns_differ_in_nothing() -> None:
    assert list_differences(turn(asked("find", q="x"), text="a"), turn(asked("find", q="x"), text="a")) == ()


def test_each_thing_that_differs_has_its_word() -> None:
    one = turn(asked("find", "found", q="x"), text="a", thinking="hm")
    assert list_differences(one, turn(asked("find", "found", q="y"), text="a", thinking="hm")) == ("arguments of find",)
    assert list_differences(one, turn(asked("find", "nothing", q="x"), text="a", thinking="hm")) == ("result of find",)
    assert list_differences(one, turn(asked("find", "found", q="x"), text="b")) == ("words", "thinking")
    assert list_differences(one, turn(text="a", thinking="hm")) == ("tools",)


def test_arguments_in_another_order_are_told_as_that() -> None:
    assert list_differences(turn(asked("f", a="1", b="2")), turn(asked("f", b="2", a="1"))) == ("order of arguments",)


def test_arguments_are_marked_one_by_one_and_what_is_gone_is_named() -> None:
    [call] = compare_calls(turn(asked("find", q="x", near="y")), turn(asked("find", q="x", far="z")))
    assert [(a.name, a.differs) for a in call.arguments] == [("q", False), ("near", True)]
    assert call.gone == ("far",)


def test_calls_are_held_against_those_of_the_same_tool_in_their_order() -> None:
    one = turn(asked("find", q="1"), asked("read", q="r"), asked("find", q="2"))
    calls = compare_calls(one, turn(asked("find", q="1"), asked("find", q="9")))
    assert [(c.name, c.new, [a.differs for a in c.arguments]) for c in calls] == [
        ("find", False, [False]),
        ("read", True, [False]),
        ("find", False, [True]),
    ]


def test_a_text_and_a_number_that_look_alike_differ() -> None:
    text = turn(ToolExchange("f", (Argument("n", "1", is_json=False),)))
    assert list_differences(turn(ToolExchange("f", (Argument("n", "1", is_json=True),))), text) == ("arguments of f",)
