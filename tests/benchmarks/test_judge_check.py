"""Scripted judges and the check: the page shows the committed figures, which are as good as is promised."""

from __future__ import annotations

import json
from typing import cast

import pytest

from benchmarks import judge_check
from judge.adversarial.check import VERSION
from judge.adversarial.tricks import KINDS


def committed() -> judge_check.JudgeCheckFigures:
    return cast(judge_check.JudgeCheckFigures, json.loads(judge_check.RESULTS.read_text("utf-8")))


def test_each_committed_judge_is_found_out_by_the_kind_it_falls_for_and_the_sound_one_by_none() -> None:
    found = committed()
    assert (found["set"], found["groups"]) == (VERSION, 20)
    assert found["named"] == {judge_check.SOUND: [], **{kind: [kind] for kind in KINDS}}
    assert set(found["fooled"][judge_check.SOUND].values()) == {0}


def test_the_page_shows_the_committed_figures() -> None:
    page = judge_check.PAGE.read_text("utf-8")
    assert judge_check.MARKS.put(page, judge_check.tables(committed())) == page


@pytest.mark.slow  # every judge is tried
async def test_the_committed_figures_are_what_is_measured() -> None:
    measured = await judge_check.measure(3)
    found = committed()
    assert measured["named"] == found["named"]
    for judge, by_kind in measured["fooled"].items():
        assert by_kind == {kind: min(3, found["fooled"][judge][kind]) for kind in KINDS}
