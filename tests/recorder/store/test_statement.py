"""Statements compiled once: how their parameters are spelled."""

from __future__ import annotations

import json
import math

import pytest
from sqlalchemy import bindparam, select

from recorder.store.database import Store
from recorder.store.schema import calls, trajectories
from recorder.store.statement import Statement, column_json
from tests.recorder.rows import Rows


def test_lists_are_spelled_out() -> None:
    query = select(calls.c.id).where(
        calls.c.project_id == bindparam("p"), calls.c.id.in_(bindparam("ids", expanding=True))
    )
    text, flat = Statement(query).spelled({"p": "default", "ids": ["a", "b"]})
    assert text.endswith("calls.id IN (?,?)")
    assert flat == ["default", "a", "b"]


ODD = {'a "NaN\\': [math.inf, -math.inf, "-Infinity"], "mean": math.nan}


async def test_numbers_that_json_has_no_word_for_are_kept_as_far_as_they_are_any(store: Store) -> None:
    rows = Rows(store)
    run = await rows.trajectory(answered=False, tags=ODD)
    kept = (await rows.get(trajectories, run))["tags"]
    assert kept == {**ODD, "mean": None}
    json.loads(column_json(ODD), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
