"""Every reason code has a plain sentence. That docs/reasons.md has them all: tests/docs/test_pages.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

from judge.errors import CannotJudge, JudgeFailed
from judge.scoring.score import NEEDS_TWO
from recorder.content.trainable import LeftOut
from recorder.errors import FailureKind
from recorder.groups.readiness import GroupCode
from recorder.reasons import REASONS, meaning
from scripts import rooms
from trainer.batch.rows import IN_OWN_GROUP, ROW_TOO_LONG
from trainer.batch.weights import NotTrained

TABLE = [code for sentences in REASONS.values() for code in sentences]


def raised_codes() -> Iterator[str]:
    """The codes with which the judge says that a group cannot be scored."""
    names = {cls.__name__ for cls in (CannotJudge, JudgeFailed)} | {
        cls.__name__ for cls in (*CannotJudge.__subclasses__(), *JudgeFailed.__subclasses__())
    }
    for file in rooms.files("judge"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    yield str(code.value)
                elif isinstance(code, ast.JoinedStr):  # "judge_", and how the model failed
                    yield from (f"{ast.literal_eval(code.values[0])}{how}" for how in get_args(FailureKind))


def test_every_code_has_a_sentence() -> None:
    codes = {*LeftOut, *GroupCode, *NotTrained, NEEDS_TWO, ROW_TOO_LONG, IN_OWN_GROUP, *raised_codes()}
    assert "judge_down" in codes
    assert not sorted(codes - set(TABLE))


def test_a_code_stands_once_and_a_sentence_is_one() -> None:
    assert len(TABLE) == len(set(TABLE))
    for code in TABLE:
        sentence = meaning(code)
        assert sentence is not None
        assert sentence[0].isupper() or sentence[0] == "`"
        assert sentence.endswith(".")
    assert meaning("promote") is None
