"""Measurements of a long run, made up for its tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.rlvr.long_run.phases import FORMS, plan_phases
from examples.rlvr.long_run.points import FormPoint, Point

PHASES = plan_phases()


def form_point(success: float, entropy: float = 0.3, tokens: float = 20.0) -> FormPoint:
    return FormPoint(
        answers=200, success=success, low=success, high=success, entropy=entropy, tokens=tokens, cut_off=0.0
    )


def point(step: int, **success: float) -> Point:
    phase = next(phase.name for phase in PHASES if step <= phase.last)
    forms = {form: form_point(success.get(form, 0.5)) for form in FORMS}
    drift = {"kl_base": 0.1 + step / 1000, "kl_parent": 0.001, "entropy": 0.3} if step else {}
    return Point(
        step=step, phase=phase, version=f"rlvr@{step}", forms=forms, drift=drift, reward=0.9, own_success=0.5
    )  # fmt: skip


@pytest.fixture
def whole_run() -> Callable[[Callable[[int], dict[str, float]]], list[Point]]:
    """All measurements of a run. The given function returns forms' success after so many steps; 0.5 by default."""
    return lambda success: [point(step, **success(step)) for step in range(0, 401, 20)]
