"""Long things made short: what is seen of a text, which turns a page has, and that it is held to its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.dashboard.page_budget import (
    PAGE_BYTES,
    SEEN_CHARS,
    SEEN_LINES,
    UNFOLDED_CHARS,
    ByteBudget,
    html_size,
    turn_window,
    without_media,
)
from recorder.views.trajectory_detail.conversation import ConversationMessage

turns = st.lists(st.integers(0, 60_000), max_size=40).map(
    lambda sizes: [ConversationMessage(2 * at, "user", None, ("x" * chars,)) for at, chars in enumerate(sizes)]
)


def test_a_short_text_is_whole() -> None:
    fold = ByteBudget().fold("one\ntwo")
    assert (fold.seen, fold.folded, fold.left_out) == ("one\ntwo", "", 0)


def test_a_text_of_many_lines_is_folded_at_a_lines_end() -> None:
    lines = [f"line {n}" for n in range(100)]
    fold = ByteBudget().fold("\n".join(lines))
    assert fold.seen.split("\n") == lines[:SEEN_LINES]
    assert (fold.folded.split("\n"), fold.lines, fold.left_out) == (lines[SEEN_LINES:], 60, 0)


def test_a_very_long_line_is_seen_unfolded_and_left_out() -> None:
    fold = ByteBudget().fold("x" * 50_000)
    assert (len(fold.seen), len(fold.folded)) == (SEEN_CHARS, UNFOLDED_CHARS)
    assert fold.left_out == 50_000 - SEEN_CHARS - UNFOLDED_CHARS


@given(st.lists(st.text(max_size=3000), max_size=40), st.integers(0, 20_000))
def test_a_purse_is_spent_once(texts: list[str], held: int) -> None:
    purse = ByteBudget(held)
    folds = [purse.fold(text) for text in texts]
    # a control character becomes six that are seen, `<` four bytes
    assert sum(html_size(fold.seen) + html_size(fold.folded) for fold in folds) <= 10 * (held + 66 * len(texts))
    for text, fold in zip(texts, folds, strict=True):
        assert fold.left_out <= len(text)


@given(turns, st.integers(2_000, PAGE_BYTES))
def test_pages_one_after_another_show_every_turn_once(all_turns: list[ConversationMessage], held: int) -> None:
    seen: list[int] = []
    start: int | None = 0
    while start is not None and all_turns:
        page = turn_window(all_turns, start, held)
        seen += [turn.at for part in page.parts for turn in part.turns]
        start = page.after
    assert seen == [turn.at for turn in all_turns]


@given(turns.filter(bool), st.integers(2_000, PAGE_BYTES))
def test_the_first_page_has_both_ends_and_says_what_is_between(all_turns: list[ConversationMessage], held: int) -> None:
    page = turn_window(all_turns, None, held)
    shown = [turn.at for part in page.parts for turn in part.turns]
    assert (shown[0], shown[-1]) == (all_turns[0].at, all_turns[-1].at)
    assert len(shown) + sum(part.skipped for part in page.parts) == len(all_turns)
    assert page.whole is (len(shown) == len(all_turns))


def test_what_is_no_text_is_named_by_its_length() -> None:
    picture = {"type": "image_url", "image_url": {"url": "A" * 5000}}
    message = {"role": "user", "content": [{"type": "text", "text": "B" * 5000}, picture]}
    shown = without_media(message)
    assert shown["content"][0]["text"] == "B" * 5000
    assert shown["content"][1] == {"type": "image_url", "image_url": {"url": "… 5000 characters"}}
