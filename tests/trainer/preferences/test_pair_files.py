"""Files of pairs: the forms of a preference data set, and faults with line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.errors import DemonstrationsInvalid
from trainer.preferences.pair_files import read_pairs

USER = {"role": "user", "content": "Where is 4821?"}
GOOD, BAD = {"role": "assistant", "content": "In Bonn."}, {"role": "assistant", "content": "No idea."}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"id": 4821}'}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "Bonn"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def write(folder: Path, *rows: Any) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return file


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Where is 4821?", "chosen": "In Bonn.", "rejected": "No idea."},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": "In Bonn.", "rejected": [BAD]},
        {"prompt": "Where is 4821?", "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": "Where is 4821?", "chosen": [USER, GOOD], "rejected": [USER, BAD], "score_chosen": 8.5},
    ],
)
def test_each_form_gives_the_same_pair(tmp_path: Path, row: dict[str, Any]) -> None:
    file = write(tmp_path, row)
    (pair,) = read_pairs(file)
    (plain,) = read_pairs(write(tmp_path, {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}))
    assert pair == plain
    assert (list(pair.chosen.messages), list(pair.rejected.messages)) == ([USER, GOOD], [USER, BAD])
    assert (pair.chosen.answers, pair.rejected.answers, pair.name) == ([1], [1], f"{file}:1")
    assert pair.chosen.source_id == f"{pair.source_id}:chosen"


def test_a_shared_beginning_is_the_prompt_answers_included(tmp_path: Path) -> None:
    (pair,) = read_pairs(
        write(
            tmp_path,
            {"chosen": [USER, CALLED, RESULT, GOOD], "rejected": [USER, CALLED, RESULT, BAD], "tools": TOOLS},
        )
    )
    assert (pair.chosen.answers, pair.rejected.answers) == ([3], [3])
    assert pair.chosen.tools == pair.rejected.tools == TOOLS


@pytest.mark.parametrize(
    ("chosen", "rejected", "answers"),
    [
        ([USER, GOOD], [USER, GOOD, USER, BAD], ([1], [1, 3])),  # one goes on where the other ends
        ([USER, GOOD], [USER, GOOD], ([1], [1])),
        ([USER, {**GOOD, "weight": 0}, USER, GOOD], [USER, BAD], ([3], [1])),
    ],
)
def test_each_side_has_an_answer_of_its_own(
    tmp_path: Path, chosen: list[Any], rejected: list[Any], answers: tuple[list[int], list[int]]
) -> None:
    (pair,) = read_pairs(write(tmp_path, {"chosen": chosen, "rejected": rejected}))
    assert (pair.chosen.answers, pair.rejected.answers) == answers


def test_a_row_is_the_same_datum_in_every_file_and_its_sides_in_turn_are_another(tmp_path: Path) -> None:
    row = {"prompt": "x", "chosen": "y", "rejected": "z"}
    first, second = read_pairs(write(tmp_path, row, {**row, "chosen": "z", "rejected": "y"}))
    other = tmp_path / "other"
    other.mkdir()
    (third,) = read_pairs(write(other, row))
    assert first.source_id == third.source_id != second.source_id


@pytest.mark.parametrize(
    ("line", "place", "why"),
    [
        ('{"prompt": "x", "chosen": "y"}', "2:2", "it has no rejected"),
        ('{"chosen": "y", "rejected": "z"}', "2:2", "chosen is a text, so the row needs a prompt"),
        ('{"prompt": 3, "chosen": "y", "rejected": "z"}', "2:2", "prompt is a list of messages"),
        ('{"prompt": "x", "chosen": [], "rejected": "z"}', "2:17", "chosen is a list of messages"),
        ('{"prompt": "x", "chosen": "y", "rejected": [{"role": "bot"}]}', "2:45", "message 1 of rejected.*'bot'"),
        ('{"prompt": "x", "chosen": "y", "rejected": "z", "label": 1}', "2:49", "unknown key 'label'"),
        ('{"prompt": "x", "chosen": "y", "rejected": "z", "chosen": "y"}', "2:49", "'chosen' is given twice"),
        ('{"prompt": "x", ', "2", "not JSON"),
        ("[1]", "2:1", "a row is an object"),
    ],
)
def test_a_fault_has_line_and_column_and_nothing_of_the_file_is_used(
    tmp_path: Path, line: str, place: str, why: str
) -> None:
    file = write(tmp_path, {"prompt": "x", "chosen": "y", "rejected": "z"}, line)
    with pytest.raises(DemonstrationsInvalid, match=rf"is not used.*\n.*pairs\.jsonl:{place}: .*{why}"):
        read_pairs(file)


def test_an_empty_file_has_no_pair(tmp_path: Path) -> None:
    with pytest.raises(DemonstrationsInvalid, match="has no pair"):
        read_pairs(write(tmp_path))


def test_parquet_has_the_same_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}]
    file = tmp_path / "pairs.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    assert [one.source_id for one in read_pairs(file)] == [one.source_id for one in read_pairs(write(tmp_path, *rows))]
