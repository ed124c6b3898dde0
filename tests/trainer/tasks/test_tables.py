"""Tables of prompts with criteria, and criteria in scenario lines: what is taken, named, and refused where."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ScenariosInvalid
from trainer.tasks.scenarios import IgnoredColumn, Scenario, ignored_columns, parse_scenarios, read_scenarios

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda t: t == t.strip() != ""
)
tables = st.lists(
    st.tuples(words, st.dictionaries(st.integers(1, 400), words, min_size=1, max_size=6)), min_size=1, max_size=5
)
TableRows = list[tuple[str, dict[int, str]]]


def objects(written: TableRows, shuffle: random.Random) -> list[dict[str, Any]]:
    """The rows of a table, their columns in any order, with others between them and shorter rows filled up."""
    found = []
    for number, (prompt, criteria) in enumerate(written):
        columns: list[tuple[str, Any]] = [("prompt", prompt), ("task_id", f"t{number}"), ("domain", ["law"])]
        columns += [(f"rubric - {n}. criterion", text) for n, text in criteria.items()]
        columns += [("rubric - 401. criterion", None), ("rubric - 402. criterion", " "), ("rubric - 1. origin", 3)]
        shuffle.shuffle(columns)
        found.append(dict(columns))
    return found


def expected(written: TableRows) -> list[Scenario]:
    return [
        Scenario(f"t{number}", prompt, rubric=[{"id": str(n), "text": criteria[n]} for n in sorted(criteria)])
        for number, (prompt, criteria) in enumerate(written)
    ]


def refusal(text: str) -> str:
    with pytest.raises(ScenariosInvalid) as refused:
        parse_scenarios(text.encode().split(b"\n"), "f")
    return str(refused.value).removeprefix("f is not usable:\n")


@given(
    tables, st.randoms(use_true_random=False), st.sampled_from([None, 0, 2]), st.sampled_from(["array", "lines"]),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_criteria_come_in_the_order_of_their_numbers_however_the_table_is_written(
    tmp_path_factory: pytest.TempPathFactory,
    written: TableRows,
    shuffle: random.Random,
    indent: int | None,
    form: str,
    mark: bool,
    windows: bool,
    raw: bool,
) -> None:
    rows = objects(written, shuffle)
    values = rows if form == "lines" else [rows]
    text = "\n".join(json.dumps(value, ensure_ascii=False, indent=indent) for value in values)
    if raw:  # as exports have them: breaks and tabs inside texts stand there as they are
        text = text.replace("\\\\", "\x00").replace("\\n", "\n").replace("\\t", "\t").replace("\x00", "\\\\")
    if windows and not raw:  # inside a text a break would become two
        text = text.replace("\n", "\r\n")
    path = tmp_path_factory.mktemp("table") / "f.json"
    path.write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    assert read_scenarios(path) == expected(written)


def test_a_table_without_ids_counts_its_tasks() -> None:
    row = '{"prompt": "a", "rubric - 1. criterion": "b"}'
    assert [task.id for task in parse_scenarios([row.encode(), b"", row.encode()], "f")] == ["task-1", "task-2"]


NEARLY = {
    "Rubric - 2. Criterion": "rubric - 2. criterion",
    "rubric - 3 criterion": "rubric - 3. criterion",
    "rubric – 4. criterion": "rubric - 4. criterion",
    "rubric_5_criterion": "rubric - 5. criterion",
    "rubrik - 06. criteria": "rubric - 6. criterion",
    "rubric - criterion": "rubric - 1. criterion",
    "criterion 7": "",
    "rubric - 1. weight": "",
    "Weights": "",
    "rubric": "",
}


@pytest.mark.parametrize("name", NEARLY)
def test_a_column_that_looks_like_a_criterion_and_is_none_is_named(name: str) -> None:
    good: dict[str, Any] = {"prompt": "x", "rubric - 1. criterion": "y", "domain": "law", "task_id": "a"}
    rows = [good, good | {name: "z", "task_id": "b"}, good | {"task_id": "c", name: "z"}, good | {name: None}]
    found = ignored_columns(parse_scenarios([json.dumps(row).encode() for row in rows[:3]], "f"))
    assert found == [IgnoredColumn(name, 2, "f, line 2", NEARLY[name])]
    assert repr(name) in str(found[0])
    assert (f"is named {NEARLY[name]!r}" in str(found[0])) == bool(NEARLY[name])
    assert not ignored_columns(parse_scenarios([json.dumps(rows[3] | {"task_id": "d"}).encode()], "f"))


def test_columns_that_are_read_or_unlike_criteria_are_not_named() -> None:
    row = {"prompt": "x", "rubric-1.criterion": "y", "rubric - 2. criterion": " ", "task_id": 7, "domain": "law"}
    assert ignored_columns(parse_scenarios([json.dumps(row).encode()], "f")) == []


def test_a_task_without_a_criterion_names_those_that_are_nearly_one() -> None:
    said = refusal('{"prompt": "x", "Rubric - 1. Criterion": "y"}')
    assert said.endswith("""it has no criterion: write "rubric - 1. criterion": "…", not 'Rubric - 1. Criterion'""")


@pytest.mark.parametrize(
    ("row", "line", "said"),
    [
        ('{"task_id": "a",\n"rubric - 1. criterion": "x"}', 1, '"prompt" is missing'),
        ('{"task_id": "a",\n"prompt": " ",\n"rubric - 1. criterion": "x"}', 2, '"prompt" is empty'),
        ('{"task_id": "a",\n"prompt": ["x"],\n"rubric - 1. criterion": "x"}', 2, '"prompt" is not a text'),
        ('{"task_id": "a",\n"prompt": "x"}', 1, "it has no criterion"),
        ('{"prompt": "x",\n"rubric - 1. criterion": " ",\n"rubric - 2. criterion": null}', 1, "it has no criterion"),
        (
            '{"prompt": "x",\n"rubric - 2. criterion": "a",\n"rubric - 02. criterion": "b"}',
            3,
            "'rubric - 02. criterion': criterion 2 appears twice",
        ),
        (
            '{"prompt": "x",\n"rubric - 2. criterion": "a",\n"rubric - 2. criterion": "b"}',
            3,
            "the key 'rubric - 2. criterion' appears twice",
        ),
        ('{"prompt": "x",\n"rubric - 1. criterion": 7}', 2, "'rubric - 1. criterion' is not a text"),
        ('{"prompt": "x",\n"task_id": "a b",\n"rubric - 1. criterion": "x"}', 2, "the task_id 'a b' is not a valid id"),
        ('{"prompt": "x",\n"task_id": {},\n"rubric - 1. criterion": "x"}', 2, '"task_id" is an object'),
    ],
)
def test_a_task_at_fault_is_named_by_its_object_and_line(row: str, line: int, said: str) -> None:
    good = '{"task_id": "good", "prompt": "x", "rubric - 1. criterion": "x"}'
    told = refusal(f"[\n{good},\n{row}\n]")
    assert told.startswith(f"line {line + 2}: object 2: ")
    assert said in told
    assert refusal(f"{good}\n{row}").startswith(f"line {line + 1}: object 2: ")


def test_a_doubled_task_id_is_told_with_both_places() -> None:
    row = '{"task_id": "a", "prompt": "x", "rubric - 1. criterion": "x"}'
    assert refusal(f"[{row},\n{row}]") == "line 2: object 2: the id 'a' is taken by line 1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"prompt": "x", "rubric - 1. criterion": "x"}\n{"prompt"', "line 2: not JSON: after object 1 a comma"),
        ('[{"prompt": "x", "rubric - 1. criterion": "x"}', "line 1: not JSON: after object 1 a comma"),
        ('[{"prompt": "x", "rubric - 1. criterion": "x"},]', "line 1: not JSON: Expecting value (column 48)"),
        ('[{"prompt": "x", "rubric - 1. criterion": "x"}]\n1', "line 2: not JSON: something follows the array"),
        ('[{"prompt": "x",\n"rubric - 1. criterion": x}]', "line 1: not JSON: Expecting value (line 2, column 26)"),
        ('[{"prompt": "x", "weight": NaN}]', "line 1: NaN is not JSON"),
        ('[{"prompt": "x", "rubric - 1. criterion": "x"}, 7]', "line 1: object 2: a scenario is a JSON object, not"),
    ],
)
def test_an_array_that_is_none_is_told_by_the_line(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("rubric", "said"),
    [
        ("[]", "it has no criterion"),
        ('["a", ""]', "criterion 2 is empty"),
        ('["a", 4]', "criterion 2 is a number"),
        ('[{"id": "x"}]', "criterion 1: `text` is null"),
        ('[{"text": "a", "weigth": 2}]', "criterion 1: unknown key 'weigth'"),
        ('[{"text": "a", "weight": 0}]', "criterion 1: `weight` is 0"),
        ('[{"text": "a", "weight": 1e999}]', "criterion 1: `weight` is inf"),
        ('[{"text": "a", "weight": true}]', "criterion 1: `weight` is true or false"),
        ('[{"text": "a", "weight": -1}]', "no criterion has a weight above 0"),
        ('[{"text": "a", "check": "rm -rf"}]', "criterion 1: `check` 'rm -rf' is not of the form"),
        ('[{"text": "a", "id": "x"}, {"text": "b", "id": "x"}]', "two criteria have the id 'x'"),
        ('[{"text": "a", "id": "1"}, "b", {"text": "c", "id": "2"}]', "two criteria have the id '2'"),
        ('[{"text": "a", "id": "x y"}]', "criterion 1: `id` 'x y' is not 1 to 64 of"),
        ('[{"text": "a", "text": "b"}]', "the key 'text' appears twice in one criterion"),
        ('["a", {"text": "b", "check": {"value": 1}}]', "criterion 2: `check`: `rule` None is none of answer_schema, "),
        ('[{"text": "a", "check": {"rule": "is_nice"}}]', "criterion 1: `check`: `rule` 'is_nice' is none of"),
        ('[{"text": "a", "check": {"rule": ["regex"]}}]', "criterion 1: `check`: `rule` ['regex'] is none of"),
        ('[{"text": "a", "check": {"rule": "regex", "is": "x"}}]', "`check`: unknown key 'is' (known: rule, value)"),
        (
            '[{"text": "a", "check": {"rule": "regex"}}]',
            "`value` of the rule 'regex' must be a regular expression, not",
        ),
        (
            '[{"text": "a", "check": {"rule": "regex", "value": "("}}]',
            "`value` of the rule 'regex' is not a regular expr",
        ),
        ('[{"text": "a", "check": {"rule": "max_turns", "value": true}}]', "must be a whole number from 0, not True"),
        (
            '[{"text": "a", "check": {"rule": "answer_schema", "value": {"type": 7}}}]',
            "is not a JSON schema: type: 7 is",
        ),
        (
            '[{"text": "a", "check": {"rule": "answer_schema", "value": {"not": {"type": "x", "type": "y"}}}}]',
            "the key 'type' appears twice in one criterion",
        ),
        ('[{"text": "a", "check": ["regex", "x"]}]', "criterion 1: `check` ['regex', 'x'] is not of the form"),
    ],
)
def test_a_scenarios_criteria_are_checked_where_they_stand(rubric: str, said: str) -> None:
    told = refusal(f'{{"id": "a", "input": 1,\n"rubric": {rubric}}}')
    assert told.startswith('line 2: object 1: "rubric": ')
    assert said in told


@pytest.mark.parametrize(
    ("rubric", "line"),
    [
        ('["a",\n"b",\n{"text": "c", "weight": 0}, "d"]', 4),
        ('[{"text": "a\tb, [\n"},\n{"text": "b",\n"check": {"rule": "regex", "value": "("}}]', 4),
        ('[\n\n{"text": "a", "text": "b"}]', 4),
        ('[{"id": "x", "text": "a"},\n{"id": "x", "text": "b"}]', 3),
        ('[\n{"text": "a", "weight": -1}]', 2),  # of all, not of one
    ],
)
def test_a_criterion_at_fault_is_named_by_its_own_line(rubric: str, line: int) -> None:
    before = '{"id": "a", "input": {"rubric": ["x"], "said": "rubric"},\n"rubric": '
    assert refusal(f"{before}{rubric}}}").startswith(f"line {line}: object 1: ")


def test_a_scenarios_criteria_stay_as_they_were_written() -> None:
    rubric: list[object] = [
        "polite",
        {"id": "liar", "text": "It lies", "weight": -0.5},
        {"text": "short", "check": "checks:short"},
    ]
    rubric.append({"text": "has a number", "check": {"rule": "regex", "value": r"\d"}})
    (one,) = parse_scenarios([json.dumps({"id": "a", "input": 1, "rubric": rubric}).encode()], "f")
    assert one.rubric == rubric
