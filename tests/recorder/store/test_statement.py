"""Statements compiled once: how their parameters are spelled."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from recorder.store.schema import calls
from recorder.store.statement import Statement


def test_lists_are_spelled_out() -> None:
    query = select(calls.c.id).where(
        calls.c.project_id == bindparam("p"), calls.c.id.in_(bindparam("ids", expanding=True))
    )
    text, flat = Statement(query).spelled({"p": "default", "ids": ["a", "b"]})
    assert text.endswith("calls.id IN (?,?)")
    assert flat == ["default", "a", "b"]
