"""Ids of our own, and those that come from outside."""

from __future__ import annotations

import time

import pytest

from recorder.errors import InvalidId
from recorder.ids import check_external, new_id

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def test_an_id_says_what_it_is_and_when_it_was_made() -> None:
    before_ms = time.time_ns() // 1_000_000
    made = new_id("traj")
    prefix, _, digits = made.partition("_")
    assert (prefix, len(digits), set(digits) <= set(ALPHABET)) == ("traj", 26, True)
    value = sum(ALPHABET.index(digit) << 5 * place for place, digit in enumerate(reversed(digits)))
    assert before_ms <= value >> 80 <= time.time_ns() // 1_000_000
    assert check_external(made, "the id") == made


def test_ids_are_sorted_by_time_and_never_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for ms in (1, 31, 32, 1023, 1024, 2**47):
        monkeypatch.setattr(time, "time_ns", lambda ms=ms: ms * 1_000_000)
        made += [sorted(new_id("call") for _ in range(50))]
    flat = [id_ for ids in made for id_ in ids]
    assert flat == sorted(flat)
    assert len(set(flat)) == len(flat)


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a b", "a\n", "é", "%2e", "x" * 129, "\x1b[31m"])
def test_external_ids_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(InvalidId, match="the group"):
        check_external(bad, "the group")


@pytest.mark.parametrize("good", ["...", "a", "A.b_c:d~e-f", "x" * 128])
def test_external_ids_stay_as_they_are(good: str) -> None:
    assert check_external(good, "the group") == good
