"""Scripted judges against scripted people: the page and its picture show the committed figures."""

from __future__ import annotations

import json
from typing import cast

import pytest

from benchmarks import calibration


def committed() -> calibration.CalibrationFigures:
    return cast(calibration.CalibrationFigures, json.loads(calibration.RESULTS.read_text("utf-8")))


def test_the_committed_figures_tell_each_judge_for_what_it_is() -> None:
    judges = committed()["judges"]
    assert judges.keys() == calibration.JUDGES.keys()
    for name, figures in judges.items():
        scripted = calibration.JUDGES[name]
        assert (figures["position_bias"]["low"] > 0.1) == (scripted.place > 0), name
        assert (figures["length_bias"]["low"] > 0.1) == (scripted.length > 0), name
        assert figures["usd"] == scripted.usd
    accuracy = {name: figures["accuracy"] for name, figures in judges.items()}
    assert accuracy["guess"]["low"] <= 0.5 <= accuracy["guess"]["high"]
    assert accuracy["guess"]["high"] < accuracy["hasty"]["low"]
    assert accuracy["hasty"]["high"] < accuracy["quick"]["low"]


def test_the_cheapest_that_is_good_enough_is_taken() -> None:
    found = committed()
    assert found["taken"] == "quick"
    assert found["groups"] == calibration.GROUPS
    assert 400 < found["pairs"] < 3 * calibration.GROUPS  # those that people told apart


def test_the_page_and_the_picture_show_the_committed_figures() -> None:
    page = calibration.PAGE.read_text("utf-8")
    assert calibration.MARKS.put(page, calibration.tables(committed())) == page
    assert calibration.PICTURE.read_text("utf-8").startswith("<?xml")


@pytest.mark.long
@pytest.mark.slow  # every judge is asked about every group, and the picture is drawn
async def test_the_committed_figures_are_what_is_measured() -> None:
    measured, found = await calibration.measure(), committed()
    assert measured == {name: found[name] for name in measured}  # type: ignore[literal-required]
    assert calibration.picture(found) == calibration.PICTURE.read_text("utf-8")
