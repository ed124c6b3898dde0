"""What commands print for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from recorder.base.json_output import to_json, write_json, write_json_line
from tests.recorder.commands.printing import HOSTILE, harmless


@dataclass
class Point:
    """A dataclass with a number that JSON does not have."""

    x: float
    names: frozenset[str]


def test_what_json_has_no_form_for_gets_one() -> None:
    assert json.loads(to_json([Point(float("nan"), frozenset("a"))])) == [{"x": None, "names": ["a"]}]


def test_a_transcript_reaches_no_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"text": f"{HOSTILE}é"})
    told = capsys.readouterr().out
    assert told.isascii()
    assert harmless(told)
    assert json.loads(told) == {"text": f"{HOSTILE}é"}


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_json_line({"a": [1, "x"]})
    write_json_line({"a": [1, "x"]}, compact=True)
    assert capsys.readouterr().out == '{"a": [1, "x"]}\n{"a":[1,"x"]}\n'
