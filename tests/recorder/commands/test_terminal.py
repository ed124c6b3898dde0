"""What was recorded is hostile text: on a terminal it is shown, never obeyed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.commands import terminal
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
    shown = terminal.table((HOSTILE,), [(HOSTILE,)])
    assert "[bold red]not markup[/]" in printed(shown)
    assert harmless(printed(shown))
    assert harmless(uncoloured(shown))  # the only escapes are our own colours
