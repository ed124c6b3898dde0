"""Whether a long run kept what it had learned. Pure.

Owns: how far each form fell after its own phase, and whether the model collapsed. Refuses: measuring
(`examples.rlvr.long_run.reading`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from examples.rlvr.long_run.phases import FORMS, Phase
from examples.rlvr.long_run.points import Point

OWN: Final = 5  # last measurements of a form's own phase
WINDOW: Final = 3  # measurements in a row whose mean is compared with theirs
MOST_FALL: Final = 0.05
COLLAPSED: Final = 0.5  # of the highest mean of all forms before


@dataclass(frozen=True, slots=True)
class FormFall:
    """A form's success at the end of its own phase, and its lowest mean of three measurements afterwards.

    `lowest`, `steps`: None and empty as long as there are no three. `steps`: those of the three measurements.
    """

    form: str
    own: float
    lowest: float | None
    steps: Sequence[int]

    @property
    def fall(self) -> float | None:
        """How far the lowest mean is below the own phase's; negative if above."""
        return None if self.lowest is None else self.own - self.lowest

    @property
    def kept(self) -> bool:
        """Whether no mean is more than five points below."""
        return self.fall is None or self.fall <= MOST_FALL + 1e-9


def form_falls(points: Sequence[Point], phases: Sequence[Phase]) -> list[FormFall]:
    """Return the fall of each form whose first phase is over."""
    found = []
    for form in FORMS:
        own = next(phase for phase in phases if phase.form == form)
        inside = [one for one in points if own.first < one.step <= own.last]
        if inside and inside[-1].step == own.last:
            found.append(_form_fall(form, inside[-OWN:], [one for one in points if one.step > own.last]))
    return found


def _form_fall(form: str, own: Sequence[Point], later: Sequence[Point]) -> FormFall:
    level = statistics.fmean(one.forms[form].success for one in own)
    windows = [later[at : at + WINDOW] for at in range(len(later) - WINDOW + 1)]
    means = [statistics.fmean(one.forms[form].success for one in window) for window in windows]
    if not means:
        return FormFall(form, level, None, ())
    lowest = min(range(len(means)), key=means.__getitem__)
    return FormFall(form, level, means[lowest], [one.step for one in windows[lowest]])


def find_collapse(points: Sequence[Point]) -> list[int]:
    """Return the steps of the first three measurements whose mean success, over all forms, is half of an earlier one.

    Empty: the model did not collapse.
    """
    means = [statistics.fmean(one.forms[form].success for form in FORMS) for one in points]
    windows = [statistics.fmean(means[at : at + WINDOW]) for at in range(len(means) - WINDOW + 1)]
    for at, (best, now) in enumerate(pairwise(windows), start=1):
        if now < COLLAPSED * max(best, *windows[:at]):
            return [one.step for one in points[at : at + WINDOW]]
    return []
