"""The boards of a campaign and of the model's making: apart, different, and the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from examples.making.tokenizer import Message
from examples.twenty48.episode import SYSTEM, begin
from examples.twenty48.game import DIRECTIONS
from examples.twenty48.players import CHATTER, ROUND, merges
from examples.twenty48.scenarios import different_boards, write_scenarios
from examples.twenty48.taught import FIRST_SEED, LESSONS, MIXTURE, attempt, conversations, mixed
from trainer.tasks.scenarios import read_scenarios


def test_no_board_is_in_two_parts_and_none_is_the_making_s(tmp_path: Path) -> None:
    files = write_scenarios(tmp_path, 7)
    parts = [read_scenarios(path) for path in (files.learn, files.validate, files.test)]
    seeds = [scenario.input["seed"] for part in parts for scenario in part]
    assert len(parts[2]) >= 200
    assert max(seeds) < FIRST_SEED
    assert len({begin(seed).board for seed in seeds}) == len(seeds)


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    one, same, other = (write_scenarios(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 11)))
    assert one.test.read_bytes() == same.test.read_bytes() != other.test.read_bytes()
    assert len(json.loads(one.learn.read_text().splitlines()[0])) == 2


def test_a_short_form_s_parts_are_the_beginnings_of_files_of_the_size_asked_for(tmp_path: Path) -> None:
    files = write_scenarios(tmp_path, 7, validate=5, test=9)
    assert [len(path.read_text().splitlines()) for path in (files.validate, files.test)] == [5, 9]


def test_boards_go_on_without_end() -> None:
    assert len(set(islice(different_boards(1), 500))) == 500


def test_what_is_taught_begins_with_lessons_and_goes_on_with_the_mixture() -> None:
    first = [messages for messages, tools in islice(conversations(1), 60) if tools == []]
    assert len(first) == 60
    assert LESSONS > 60
    assert all(m[0] == {"role": "system", "content": SYSTEM} for m in first)
    assert [m["role"] for m in first[0][1:]] == ["user", "assistant"] * (len(first[0]) // 2)
    for said in map(_said, first):
        turn = ROUND.index(said[0])
        assert said == [ROUND[(turn + place) % len(ROUND)] for place in range(len(said))]
    then = {word for messages, _ in islice(mixed(1), 60) for word in _said(messages)}
    assert then - set(CHATTER) == set(DIRECTIONS)
    assert then & set(CHATTER)
    assert sum(share for _, share in MIXTURE) == pytest.approx(1)


def _said(messages: Sequence[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


def test_an_attempt_of_the_making_comes_from_a_board_of_its_own() -> None:
    assert attempt(merges, random.Random(1)) == attempt(merges, random.Random(1))
