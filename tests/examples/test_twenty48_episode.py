"""An attempt at 2048: its first board, what the model is shown, what its words do, and that a replay is the attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.twenty48.episode import NO_MOVE, NO_WORD, TARGET, TURNS, Episode, begin, read, replay
from examples.twenty48.game import DIRECTIONS, EMPTY, legal, total

seeds = st.integers(0, 10**9)
words = st.one_of(st.sampled_from(DIRECTIONS), st.sampled_from(["", "UP", " left.", "I claim a 5", "up down"]))


@given(seeds)
def test_an_attempt_begins_with_something_to_move_and_no_target(seed: int) -> None:
    episode = begin(seed)
    assert not episode.over
    assert episode == begin(seed)
    assert max(episode.board) < TARGET <= max(episode.board) + 2  # an 8 or a 16 is there


def test_other_seeds_begin_with_other_boards() -> None:
    assert len({begin(seed).board for seed in range(200)}) > 150


@given(seeds, st.lists(words, max_size=TURNS + 3))
def test_the_same_seed_and_answers_are_the_same_attempt(seed: int, answers: list[str]) -> None:
    episode = begin(seed)
    for answer in answers:
        if episode.over:
            break
        episode = episode.hear(answer)
    assert replay(seed, answers) == episode
    assert episode.turns <= TURNS
    assert episode.moves <= episode.turns


@given(seeds, st.lists(st.sampled_from(DIRECTIONS), min_size=1, max_size=TURNS))
def test_each_move_adds_one_small_tile_and_each_other_answer_nothing(seed: int, answers: list[str]) -> None:
    episode = begin(seed)
    for answer in answers:
        if episode.over:
            return
        after = episode.hear(answer)
        added = total(after.board) - total(episode.board)
        assert added in ((2, 4) if answer in legal(episode.board) else (0,))
        episode = after


@pytest.mark.parametrize("answer", ["left", "Left", " left\n", "left."])
def test_a_word_is_read_in_any_case_with_a_full_stop_around_it(answer: str) -> None:
    assert read(answer) == "left"


@pytest.mark.parametrize("answer", ["", "go left", "left right", "lef", "I say: up", "5", "up\nup", "ｌｅｆｔ", "up!"])
def test_anything_else_is_no_move(answer: str) -> None:
    assert read(answer) is None


def test_what_moves_nothing_costs_a_turn_and_is_answered_with_why() -> None:
    episode = Episode(seed=1, board=(1, 2, 3, *EMPTY[3:]))
    stuck, talked = episode.hear("up"), episode.hear("Let me think.")
    assert (stuck.turns, stuck.moves, stuck.board) == (1, 0, episode.board)
    assert stuck.shown() == f"{NO_MOVE}\n123\n000\n000"
    assert talked.shown() == f"{NO_WORD}\n123\n000\n000"
    assert "\n" not in stuck.hear("down").remark
    assert stuck.hear("down").remark == ""


def test_it_is_over_when_the_target_is_made_and_points_are_the_merged_tile_s() -> None:
    after = Episode(seed=1, board=(4, 4, *EMPTY[2:])).hear("left")
    assert after.reached
    assert after.over
    assert after.score == 32
    with pytest.raises(ValueError, match="is over after 1 turns"):
        after.hear("left")


def test_it_is_over_when_nothing_moves_or_no_turn_is_left() -> None:
    assert Episode(seed=1, board=(1, 2, 1, 2, 1, 2, 1, 2, 1)).over
    assert not Episode(seed=1, board=(1, 1, 1, 2, 1, 2, 1, 2, 1)).over
    assert Episode(seed=1, board=(1, *EMPTY[1:]), turns=TURNS).over


def test_answers_behind_the_end_count_for_nothing() -> None:
    talk = ["I will."] * TURNS
    assert replay(3, [*talk, "left", "up"]) == replay(3, talk)
