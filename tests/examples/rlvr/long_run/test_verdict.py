"""The verdict on a long run: five points below the end of a form's own phase, over three measurements; and collapse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.rlvr.long_run.phases import plan_phases
from examples.rlvr.long_run.points import Point
from examples.rlvr.long_run.verdict import find_collapse, form_falls

Run = Callable[[Callable[[int], dict[str, float]]], list[Point]]
PHASES = plan_phases()


def test_a_model_that_stays_where_it_was_kept_everything(whole_run: Run) -> None:
    falls = form_falls(whole_run(lambda _: {}), PHASES)
    assert [one.form for one in falls] == ["note", "record", "things"]
    assert all(one.kept and one.fall == pytest.approx(0) for one in falls)


@pytest.mark.parametrize(("later", "kept"), [(0.46, True), (0.45, True), (0.449, False), (0.2, False)])
def test_five_points_below_the_own_phase_is_the_most(whole_run: Run, later: float, kept: bool) -> None:
    falls = form_falls(whole_run(lambda step: {"note": later if step > 100 else 0.5}), PHASES)
    assert {one.form: one.kept for one in falls} == {"note": kept, "record": True, "things": True}
    assert falls[0].own == pytest.approx(0.5)
    assert falls[0].lowest == pytest.approx(later)


def test_one_low_measurement_is_no_fall_but_three_are_and_they_are_named(whole_run: Run) -> None:
    dips = {240: 0.4}
    assert form_falls(whole_run(lambda step: {"record": dips.get(step, 0.5)}), PHASES)[1].kept
    dips = {240: 0.4, 260: 0.4, 280: 0.4}
    record = form_falls(whole_run(lambda step: {"record": dips.get(step, 0.5)}), PHASES)[1]
    assert not record.kept
    assert list(record.steps) == [240, 260, 280]


def test_what_came_before_the_own_phase_and_the_second_phase_of_the_first_form_are_no_reference(whole_run: Run) -> None:
    falls = form_falls(whole_run(lambda step: {"things": 0.1 if step <= 200 else 0.7}), PHASES)
    assert falls[2].own == pytest.approx(0.7)
    falls = form_falls(whole_run(lambda step: {"note": 0.9 if step > 300 else 0.5}), PHASES)
    assert falls[0].own == pytest.approx(0.5)


def test_a_phase_that_is_not_over_has_no_verdict_and_one_without_three_later_measurements_an_open_one(
    whole_run: Run,
) -> None:
    points = whole_run(lambda _: {})
    assert form_falls([one for one in points if one.step < 100], PHASES) == []
    [note] = form_falls([one for one in points if one.step <= 140], PHASES)
    assert note.lowest is None
    assert note.fall is None


def test_a_collapse_is_half_of_what_all_forms_had_before(whole_run: Run) -> None:
    assert find_collapse(whole_run(lambda _: {})) == []
    fallen = {"note": 0.2, "record": 0.2, "things": 0.2}
    assert find_collapse(whole_run(lambda step: fallen if step >= 200 else {})) == [200, 220, 240]
    assert find_collapse(whole_run(lambda step: fallen if step in (200, 260) else {})) == []
    assert find_collapse(whole_run(lambda step: {"note": 0.0} if step >= 200 else {})) == []  # a fall, of one form
    assert find_collapse([]) == []


def test_a_slow_collapse_is_measured_from_the_highest_mean_and_not_from_the_newest(whole_run: Run) -> None:
    def slowly(step: int) -> dict[str, float]:
        return dict.fromkeys(("note", "record", "things"), max(0.0, 0.8 - step / 500))

    assert find_collapse(whole_run(slowly))
