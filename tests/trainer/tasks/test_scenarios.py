"""Scenario files: what is taken, what is refused by which line, and what is written."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ScenariosInvalid
from trainer.tasks.scenarios import Scenario, parse_scenarios, read_scenarios, scenario_line

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ids = st.from_regex(r"\A[A-Za-z0-9_:~-][A-Za-z0-9._:~-]{0,127}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
rubrics = json_values.filter(lambda v: not isinstance(v, list)) | st.lists(texts, min_size=1, max_size=3)
scenarios = st.lists(
    st.builds(Scenario, ids, json_values.filter(lambda v: v is not None), json_values, rubrics, st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda s: s.id,
)


@given(scenarios, st.sampled_from([b"", b"  ", b"\r"]))
def test_what_is_written_is_read_back_in_order(written: list[Scenario], blank: bytes) -> None:
    lines = [part for s in written for part in (scenario_line(s).encode(), blank)]
    assert parse_scenarios(lines, "a file") == written


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_are_read_or_refused_by_line(lines: list[bytes]) -> None:
    with contextlib.suppress(ScenariosInvalid):  # anything else that is raised fails the test
        assert parse_scenarios(lines, "a file")


@given(scenarios, st.integers(0, 8))
def test_a_broken_line_is_named_by_its_number(written: list[Scenario], at: int) -> None:
    lines = [scenario_line(s).encode() for s in written]
    lines.insert(at, b"{")
    with pytest.raises(ScenariosInvalid, match=rf"line {min(at, len(written)) + 1}: not JSON"):
        parse_scenarios(lines, "a file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "a"}', '"input" is missing'),
        ('{"id": "a", "input": null}', '"input" is missing'),
        ('{"input": "x"}', '"id" is missing'),
        ('{"id": "", "input": 1}', "the id '' is not a valid id: use 1 to 128 of"),
        ('{"id": true, "input": 1}', '"id" is true or false: it must be a text or a whole number'),
        ('{"id": "a b", "input": 1}', "the id 'a b' is not a valid id"),
        ('{"id": "..", "input": 1}', "the id '..' is not a valid id"),
        ('{"id": "a", "input": 1, "referense": 2}', "unknown key 'referense': did you mean 'reference'?"),
        ('{"id": "a", "input": 1, "zzz": 2}', "unknown key 'zzz' (known: id, input, reference, rubric, adversarial)"),
        ('{"id": "a", "input": NaN}', "NaN is not JSON"),
        ('{"id": "a", "input": 1, "adversarial": "yes"}', '"adversarial" is a text: it must be true or false'),
        ('{"id": "a", "input": 1, "adversarial": 1}', '"adversarial" is a number: it must be true or false'),
        ('["a"]', "a scenario is a JSON object, not a list"),
        ("null", "not null"),
        ('{"id": "a" "input": 1}', "not JSON: Expecting ',' delimiter (column 12)"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_each_fault_is_told(text: str, said: str) -> None:
    with pytest.raises(ScenariosInvalid) as refused:
        parse_scenarios([b"", text.encode()], "list.jsonl")
    assert str(refused.value).startswith("list.jsonl is not usable:\nline 2: ")
    assert said in str(refused.value)


def test_bytes_that_are_not_utf8_are_told() -> None:
    with pytest.raises(ScenariosInvalid, match="line 1: not UTF-8"):
        parse_scenarios([b'{"id": "\xff", "input": 1}'], "f")


def test_an_id_used_twice_is_told_with_both_lines() -> None:
    with pytest.raises(ScenariosInvalid, match="line 3: the id 'a' is taken by line 1"):
        parse_scenarios([b'{"id": "a", "input": 1}', b"", b'{"id": "a", "input": 2}'], "f")


def test_many_faults_are_cut() -> None:
    with pytest.raises(ScenariosInvalid, match="and 15 more"):
        parse_scenarios([b"x"] * 25, "f")


def test_a_number_is_an_id() -> None:
    assert parse_scenarios([b'{"id": 4821, "input": "x"}'], "f") == [Scenario("4821", "x")]


def test_an_empty_or_absent_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(ScenariosInvalid, match="has no scenario"):
        read_scenarios(tmp_path / "empty.jsonl")
    with pytest.raises(ScenariosInvalid, match="No such file"):
        read_scenarios(tmp_path / "absent.jsonl")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a", "input": "\xc3\xa4\xe2\x80\xa8b"}\r\n')
    assert read_scenarios(tmp_path / "f.jsonl") == [Scenario("a", "ä\u2028b")]


def test_a_line_may_say_that_it_tempts_and_only_then_is_it_written() -> None:
    adversarial, plain = parse_scenarios(
        [b'{"id": "a", "input": false, "adversarial": true}', b'{"id": "b", "input": 1}'], "f"
    )
    assert (adversarial.adversarial, plain.adversarial) == (True, False)
    assert [json.loads(scenario_line(one)) for one in (adversarial, plain)] == [
        {"id": "a", "input": False, "adversarial": True},
        {"id": "b", "input": 1},
    ]


def test_a_scenario_knows_where_it_was_read() -> None:
    assert [one.place for one in parse_scenarios([b"", b'{"id": "a", "input": 1}'], "list.jsonl")] == [
        "list.jsonl, line 2"
    ]
