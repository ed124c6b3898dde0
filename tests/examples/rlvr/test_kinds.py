"""Each kind of criterion on an answer that meets it and one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.rlvr.kinds import KINDS, Text, read

ROWS = "1. lamp 3\n2. tea 5"
RECORD = '{"item": "lamp", "count": 3, "open": true, "tags": ["tea", "salt"]}'
CASES = {
    "lines": ("The answer has exactly 2 lines.", ROWS, "lamp"),
    "none_empty": ("No line of the answer is empty.", ROWS, "lamp\n\ntea"),
    "line_words": ("Line 2 has exactly 1 words.", ROWS, "lamp\ntea tea"),
    "first_word": ('The first word of the answer is "lamp".', ROWS, "tea lamp"),
    "last_word": ('The last word of the answer is "tea".', ROWS, "tea lamp"),
    "has_word": ('The word "tea" is in the answer.', ROWS, "teapot"),
    "lacks_word": ('The word "tea" is not in the answer.', "teapot", ROWS),
    "line_word": ('The word "tea" is in line 2.', ROWS, "tea\nlamp"),
    "line_begins": ('Line 2 begins with "2.".', ROWS, "1. lamp\n- tea"),
    "lines_end": ('Every line ends with "!".', "lamp!\ntea!", "lamp!\ntea"),
    "no_capitals": ("The answer has no capital letter.", ROWS, "lamp Tea"),
    "no_digits": ("The answer has no digit.", "lamp", ROWS),
    "end_numbers": ("Every line ends with a whole number.", ROWS, "1. lamp\n2. tea 5"),
    "rise": ("The numbers at the ends of the lines rise from line to line.", "lamp 9\ntea 10", "lamp 9\ntea 9"),
    "fall": ("The numbers at the ends of the lines fall from line to line.", "lamp 10\ntea 9", "lamp 9\ntea 10"),
    "object": ("The answer is one JSON object and nothing else.", RECORD, f"{RECORD} {RECORD}"),
    "keys": ("The JSON object has exactly 4 keys.", RECORD, '{"item": 1}'),
    "key": ('The JSON object has the key "open".', RECORD, '{"item": "open"}'),
    "key_order": ('The key "item" comes before the key "open".', RECORD, '{"open": 1, "item": 2}'),
    "text": ('The value of "item" is the text "lamp".', RECORD, '{"item": ["lamp"]}'),
    "whole": ('The value of "count" is a whole number.', RECORD, '{"count": true}'),
    "within": ('The value of "count" is a number from 3 to 7.', RECORD, '{"count": "3"}'),
    "true": ('The value of "open" is true.', RECORD, '{"open": 1}'),
    "false": ('The value of "open" is false.', '{"open": false}', RECORD),
    "list": ('The value of "tags" is a list of exactly 2 texts.', RECORD, '{"tags": ["tea", 2]}'),
    "in_list": ('The list "tags" holds the text "tea".', RECORD, '{"tags": "tea"}'),
}


def test_every_kind_has_a_case() -> None:
    assert CASES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", CASES)
def test_a_criterion_is_met_by_the_one_and_not_by_the_other(kind: str) -> None:
    sentence, meets, lacks = CASES[kind]
    criterion = read(sentence)
    assert criterion is not None
    assert criterion.kind == kind
    assert criterion.met_by(Text(meets))
    assert not criterion.met_by(Text(lacks))


@pytest.mark.parametrize(
    "sentence",
    ["", "There are exactly 2 lines.", "The answer has exactly two lines.", 'The word "a" b" is in the answer.'],
)
def test_what_is_no_sentence_of_the_table_is_not_guessed(sentence: str) -> None:
    assert read(sentence) is None


@given(answer=st.text(alphabet='{}[]":,.- \n0123456789ab\\u', max_size=60), kind=st.sampled_from(sorted(CASES)))
def test_no_answer_makes_a_check_raise(answer: str, kind: str) -> None:
    criterion = read(CASES[kind][0])
    assert criterion is not None
    assert criterion.met_by(Text(answer)) in (True, False)


@pytest.mark.parametrize("answer", ["9" * 10_000, "[" * 100_000, '{"count": ' + "9" * 10_000 + "}", '{"count": NaN}'])
@pytest.mark.parametrize("kind", CASES)
def test_nor_does_one_that_is_made_to(answer: str, kind: str) -> None:
    criterion = read(CASES[kind][0])
    assert criterion is not None
    assert criterion.met_by(Text(answer)) in (True, False)
