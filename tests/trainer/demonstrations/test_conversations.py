"""Files of demonstrations: their forms, and faults with line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.demonstrations.conversations import read_conversations
from trainer.errors import DemonstrationsInvalid

USER, ANSWER = {"role": "user", "content": "Where is 4821?"}, {"role": "assistant", "content": "In Bonn."}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"id": 4821}'}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def write(folder: Path, *rows: Any) -> Path:
    file = folder / "answers.jsonl"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return file


def test_chat_rows_imitate_every_assistant_message_but_those_of_weight_0(tmp_path: Path) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "1", "content": "Bonn"}
    file = write(
        tmp_path,
        {"messages": [USER, called, result, ANSWER], "tools": TOOLS, "parallel_tool_calls": False},
        {"messages": [USER, {**ANSWER, "weight": 0}, USER, {**ANSWER, "weight": 1}]},
    )
    first, second = read_conversations(file)
    assert (first.name, list(first.answers), first.tools) == (f"{file}:1", [1, 3], TOOLS)
    assert (second.name, list(second.answers), second.tools) == (f"{file}:2", [3], None)
    assert all("weight" not in message for message in second.messages)


def test_prompt_and_completion_are_texts_or_messages(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"prompt": "Where is 4821?", "completion": "In Bonn."},
        {"prompt": [ANSWER, USER], "completion": [ANSWER]},
    )
    text, messages = read_conversations(file)
    assert (list(text.messages), list(text.answers)) == ([USER, ANSWER], [1])
    assert list(messages.answers) == [2]  # the answer in the prompt is context


def test_a_row_is_the_same_datum_in_every_file(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    other.mkdir()
    row = {"messages": [USER, ANSWER]}
    (first,) = read_conversations(write(one, row))
    second, third = read_conversations(write(other, {"prompt": "x", "completion": "y"}, row))
    assert first.source_id == third.source_id != second.source_id


@pytest.mark.parametrize(
    ("line", "place", "why"),
    [
        ('{"messages": [}', "2", "not JSON"),
        ('{"messages": [{"role": "user", "content": "x"}], "messages": 1}', "2:50", "'messages' is given twice"),
        ('{"messages": 3}', "2:2", "messages is a list of messages"),
        ('{"messages": []}', "2:2", "messages is a list of messages"),
        ('{"messages": [{"role": "user", "content": "x"}, {"role": "bot"}]}', "2:49", "message 2 .* role 'bot'"),
        ('{"messages": [{"role": "user"}]}', "2:15", "it has no content"),
        ('{"messages": [{"role": "user", "content": 3}]}', "2:15", "content is a text"),
        ('{"messages": [{"role": "user", "content": ["x"]}]}', "2:15", "a part of content"),
        ('{"messages": [{"role": "user", "content": "x", "weight": 1}]}', "2:15", "weight is 0 or 1"),
        ('{"messages": [{"role": "assistant", "tool_calls": [{"name": "x"}]}]}', "2:15", "tool_calls is a list"),
        ('{"messages": [{"role": "user", "content": "x"}], "label": 1}', "2:50", "unknown key 'label'"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": "no"}', "2:50", "tools is no JSON"),
        ('{"prompt": "x"}', "2:2", "neither messages"),
        ("[1]", "2:1", "a row is an object"),
        ("3", "2:1", "a row is an object"),
    ],
)
def test_a_fault_has_line_and_column_and_nothing_of_the_file_is_used(
    tmp_path: Path, line: str, place: str, why: str
) -> None:
    file = write(tmp_path, {"messages": [USER, ANSWER]}, line)
    with pytest.raises(DemonstrationsInvalid, match=rf"is not used.*\n.*answers\.jsonl:{place}: .*{why}"):
        read_conversations(file)


def test_an_object_over_several_lines_has_the_place_of_its_fault(tmp_path: Path) -> None:
    file = write(tmp_path, '{\n  "prompt": "x",\n  "completion": 3\n}')
    with pytest.raises(DemonstrationsInvalid, match=r":3:3: object 1: completion is a list"):
        read_conversations(file)


def test_many_faults_are_counted_and_an_empty_or_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemonstrationsInvalid, match="and 2 more"):
        read_conversations(write(tmp_path, *[{"prompt": 1}] * 7))
    with pytest.raises(DemonstrationsInvalid, match="has no conversation"):
        read_conversations(write(tmp_path))
    with pytest.raises(DemonstrationsInvalid, match=r"nowhere\.jsonl cannot be read: No such file"):
        read_conversations(tmp_path / "nowhere.jsonl")


def test_parquet_has_the_same_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [USER, ANSWER]},
    ]
    file = tmp_path / "answers.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    found = read_conversations(file)
    written = read_conversations(write(tmp_path, *rows))
    assert [one.source_id for one in found] == [one.source_id for one in written]
    assert found[0].name == f"{file}: row 1"

    parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "x", "completion": "y"}, {"prompt": "x"}]), file)
    with pytest.raises(DemonstrationsInvalid, match="row 2, column prompt: it has neither"):
        read_conversations(file)
    file.write_text("no parquet")
    with pytest.raises(DemonstrationsInvalid, match="is not parquet"):
        read_conversations(file)
