"""Judges held against people: labels met with groups, every judge asked, figures, and which to take.

Owns: the order, and which runs a label's names mean. Refuses: the file (`judge.calibration.labels`), asking
(`judge.calibration.judging`), the formulas (`judge.calibration.figures`, `judge.calibration.choosing`), and how it
reads (`judge.calibration_view`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from judge.calibration.choosing import Candidate, Choice, choose, told_apart
from judge.calibration.figures import Figure, figures
from judge.calibration.judging import Judged, judge_all, settings_of
from judge.calibration.labels import Comparison
from judge.calibration.pairs import Pair, counts, pairs_of, stacked
from judge.errors import LabelsInvalid, Spent
from judge.llm.ruler import Ask
from judge.rewards.kind import drawn_seed
from judge.settings import JudgeSettings
from recorder.errors import NotFound
from recorder.groups.lookup import find_group
from recorder.reading.transcripts import load_group
from recorder.reading.views import GroupView
from recorder.store.project import Project


@dataclass(frozen=True, slots=True)
class Held:
    """One judge against people. `pairs`: those that people told apart and it gave both scores."""

    name: str
    model: str
    pairs: int
    groups: int
    figures: Mapping[str, Figure]
    unjudged: Mapping[str, str]  # group → why
    spent: Spent
    seconds: float  # a group, in the mean

    @property
    def usd(self) -> float | None:
        """What a group costs; None: not known."""
        cost = self.spent.cost_usd
        return None if cost is None or not self.groups else cost / self.groups


@dataclass(frozen=True, slots=True)
class Heard:
    """One group of the `groups` that people labelled, as one judge, by its name, saw it."""

    judge: str
    groups: int
    judged: Judged


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of it."""

    judges: Sequence[Held]
    choice: Choice
    tolerance: float
    labels: int = 0
    groups: int = 0
    names: Sequence[str] = field(default_factory=list)


async def calibrate(
    project: Project,
    settings: JudgeSettings,
    names: Sequence[str],
    labels: Sequence[Comparison],
    tolerance: float,
    tell: Callable[[Heard], None] = lambda _: None,
    asks: Mapping[str, Ask] | None = None,
    draw: Callable[[], int] = drawn_seed,
) -> Calibrated:
    """Hold each judge, by its name, against the labels; `tell` hears of each group. `asks`: who is asked in a judge's
    place, by its name. `draw`: a seed of the order in which all judges are shown a group's runs.

    Raises:
        LabelsInvalid: a label's group, or a run of it, is not in the record.
        JudgeMisconfigured: a name is no judge, or nobody could judge by it.
        JudgeDown: a judge did not answer once.
    """
    benches = {name: settings_of(settings, name) for name in names}  # before anybody is paid
    groups, told = await _met(project, labels)
    orders = {group.id: draw() for group in groups}
    held, candidates = [], []
    for name, recipe in benches.items():
        hear = partial(_heard, tell, name, len(groups))
        judged = await judge_all(project, groups, recipe, hear, (asks or {}).get(name), orders)
        by_group = counts(pair for one in judged for pair in _pairs(one, told[one.group]))
        array = stacked(by_group, [group.id for group in groups])
        spent, there = sum((one.spent for one in judged), Spent()), [one for one in judged if one.why is None]
        seconds = sum(one.seconds for one in there) / len(there) if there else 0.0
        unjudged = {one.group: one.why for one in judged if one.why is not None}
        held.append(Held(name, recipe.model, told_apart(array), len(there), figures(array), unjudged, spent, seconds))
        candidates.append(Candidate(name, array, held[-1].usd))
    return Calibrated(held, choose(candidates, tolerance), tolerance, len(labels), len(groups), list(names))


def _heard(tell: Callable[[Heard], None], judge: str, groups: int, judged: Judged) -> None:
    tell(Heard(judge, groups, judged))


def _pairs(judged: Judged, told: Sequence[Mapping[str, float]]) -> list[Pair]:
    return [
        pair
        for people in told
        for pair in pairs_of(judged.group, people, judged.scores, places=judged.places, lengths=judged.lengths)
    ]


async def _met(
    project: Project, labels: Sequence[Comparison]
) -> tuple[list[GroupView], dict[str, list[Mapping[str, float]]]]:
    """The groups that the labels are about, and what was said of each, by the runs' ids."""
    groups: dict[str, GroupView] = {}  # by the label's name of it
    told: dict[str, list[Mapping[str, float]]] = {}
    for one in labels:
        if one.group not in groups:
            try:
                groups[one.group] = await load_group(project.store, await find_group(project, one.group))
            except NotFound as e:
                raise LabelsInvalid(f"{one.where or 'a label'}: {e}") from e
        group = groups[one.group]
        told.setdefault(group.id, []).append(_by_id(group, one))
    return list({group.id: group for group in groups.values()}.values()), told


def _by_id(group: GroupView, one: Comparison) -> dict[str, float]:
    known = {member.external_id: member.id for member in group.members if member.external_id is not None}
    known |= {member.id: member.id for member in group.members}
    if unknown := [run for run in one.scores if run not in known]:
        raise LabelsInvalid(f"{one.where or 'a label'}: group {one.group!r:.80} has no run {unknown[0]!r:.80}")
    return {known[run]: score for run, score in one.scores.items()}
