"""What was recorded is hostile text: on a terminal it is shown, never obeyed.

What commands print for programs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.base import terminal
from recorder.base.terminal import to_json, write_json, write_json_line
from tests.recorder.commands.printing import HOSTILE, harmless, printed, uncoloured


@given(st.text(st.characters(codec=None, categories=None)))
def test_clean_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    cleaned = terminal.clean(text)
    assert harmless(cleaned.replace("\t", ""))
    cleaned.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_of_any_language_is_untouched(text: str) -> None:
    assert terminal.clean(text) == text


def test_what_was_there_can_be_seen() -> None:
    assert terminal.clean("\x1b[31m\x9b\u202e\x7f") == "␛[31m\\u009b\\u202e\\u007f"
    assert terminal.clean("a\r\nb\tc") == "a\nb\tc"


def test_no_cell_of_a_table_reaches_the_terminal_as_it_is() -> None:
    shown = terminal.build_table((HOSTILE,), [(HOSTILE,)])
    assert "[bold red]not markup[/]" in printed(shown)
    assert harmless(printed(shown))
    assert harmless(uncoloured(shown))  # the only escapes are our own colours


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-3, "00:00"), (0, "00:00"), (7.4, "00:07"), (458.2, "07:38"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_a_time_to_wait_is_told_as_a_clock_does(seconds: float, told: str) -> None:
    assert terminal.format_duration(seconds) == told


def test_a_number_that_is_missing_is_a_dash() -> None:
    assert (terminal.format_number(None), terminal.format_number(0.12345), terminal.format_number(1234, ",")) == (
        "–",
        "0.123",
        "1,234",
    )
    assert (terminal.percent(None), terminal.percent(0.123)) == ("–", "12.3 %")


def test_what_is_echoed_is_harmless_and_only_our_own_colours_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo(HOSTILE, (HOSTILE, "green"))
    terminal.print_error(HOSTILE)
    told = capsys.readouterr()
    assert harmless(told.out)  # it is no terminal: colours are left out
    assert told.err.startswith("hone: ")
    assert harmless(told.err)


@dataclass
class Point:
    """A dataclass with a number that JSON does not have."""

    x: float
    names: frozenset[str]


def test_what_json_has_no_form_for_gets_one() -> None:
    assert json.loads(to_json([Point(float("nan"), frozenset("a"))])) == [{"x": None, "names": ["a"]}]


def test_a_transcript_reaches_no_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"text": f"{HOSTILE}é"})
    told = capsys.readouterr().out
    assert told.isascii()
    assert harmless(told)
    assert json.loads(told) == {"text": f"{HOSTILE}é"}


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_json_line({"a": [1, "x"]})
    write_json_line({"a": [1, "x"]}, compact=True)
    assert capsys.readouterr().out == '{"a": [1, "x"]}\n{"a":[1,"x"]}\n'
