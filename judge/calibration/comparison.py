"""Compare judges with human labels and choose one: the cheapest whose accuracy is within a tolerance of the best.

Owns: matching labels with groups, asking each judge, and the rule of choice, which may answer that more labels are
needed. Refuses: the file of labels (`judge.calibration.labels`), asking (`judge.calibration.judged_groups`), the
formulas (`judge.calibration.figures`), and the output (`judge.commands.calibration_view`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from judge.calibration.figures import Figure, accuracy, figure_difference, judge_figures
from judge.calibration.judged_groups import JudgedGroup, judge_all, judge_settings
from judge.calibration.labels import (
    TABLE,
    Counts,
    LabelledPair,
    PeopleComparison,
    count_pairs,
    labelled_pairs,
    stack_counts,
)
from judge.errors import JudgeUsage, LabelsInvalid
from judge.llm.repair import Ask
from judge.rewards.judge_context import drawn_seed
from judge.settings import JudgeSettings
from recorder.errors import NotFound
from recorder.queue.groups.lookup import find_group
from recorder.queue.judging.calibrations import JudgeAgreement
from recorder.store.database import Project
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_group

FEWEST_PAIRS: Final = 30  # without a human tie: fewer decide nothing


@dataclass(frozen=True, slots=True)
class JudgeCandidate:
    """A judge: its counts [groups, columns], over the same groups for all candidates, and its cost of a group.

    `usd` is in US dollars; None: unknown, and then treated as the most expensive.
    """

    name: str
    counts: Counts
    usd: float | None


@dataclass(frozen=True, slots=True)
class JudgeChoice:
    """The chosen judge, if decided; otherwise about how many more labelled pairs would decide it."""

    best: str | None
    taken: str | None
    more: int = 0


def choose_judge(candidates: Sequence[JudgeCandidate], tolerance: float, seed: int = 0) -> JudgeChoice:
    """The cheapest judge whose pairwise accuracy is at most `tolerance` below the best, at 95 % confidence.

    If the labels are too few to decide about a cheaper judge, `more` estimates how many more pairs would make the
    interval narrow enough, all else being equal.
    """
    pairs = min((decided_pairs(one.counts) for one in candidates), default=0)
    if pairs < FEWEST_PAIRS:
        return JudgeChoice(None, None, FEWEST_PAIRS - pairs)
    best = max(candidates, key=lambda one: (float(accuracy(one.counts.sum(0))), -_price(one)))
    for one in sorted(candidates, key=_price):
        lost = figure_difference(best.counts, one.counts, seed=seed)
        if one is best:
            return JudgeChoice(best.name, one.name)
        assert lost.value is not None, "some pairs have a human preference"
        assert lost.interval is not None
        if lost.interval.high <= tolerance:
            return JudgeChoice(best.name, one.name)
        if lost.interval.low <= tolerance:
            return JudgeChoice(best.name, None, _more(lost.value, lost.interval.high, tolerance, pairs))
    raise AssertionError("unreachable: the best is a candidate")


def _price(one: JudgeCandidate) -> float:
    return math.inf if one.usd is None else one.usd


def decided_pairs(counts: Counts) -> int:
    """The number of pairs without a human tie (ties are in the table's middle row)."""
    table = counts.sum(0)[:TABLE].reshape(3, 3)
    return round(float(table[(0, 2), :].sum()))


def _more(lost: float, high: float, tolerance: float, pairs: int) -> int:
    """How many more pairs until the interval excludes the tolerance: its width is proportional to 1 / sqrt(pairs)."""
    room = max(abs(tolerance - lost), 0.01)  # a difference of just the tolerance is never decided
    return max(1, math.ceil(pairs * ((high - lost) / room) ** 2) - pairs)


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """One judge against people. `pairs`: those without a human tie for which it scored both trajectories.

    `agreements`: what a trainer may know of it, for each judge that it was: the base of each alias is one.
    """

    name: str
    model: str
    pairs: int
    groups: int
    figures: Mapping[str, Figure]
    unjudged: Mapping[str, str]  # group → why
    spent: JudgeUsage
    seconds: float  # mean time of a group
    agreements: Sequence[JudgeAgreement] = ()

    @property
    def usd(self) -> float | None:
        """The cost of a group in US dollars; None: unknown."""
        cost = self.spent.cost_usd
        return None if cost is None or not self.groups else cost / self.groups


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """One of the `groups` labelled groups, judged by one judge."""

    judge: str
    groups: int
    judged: JudgedGroup


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """The result of a calibration."""

    judges: Sequence[JudgeResult]
    choice: JudgeChoice
    tolerance: float
    labels: int = 0
    groups: int = 0
    names: Sequence[str] = field(default_factory=list)


async def calibrate(
    project: Project,
    settings: JudgeSettings,
    names: Sequence[str],
    labels: Sequence[PeopleComparison],
    tolerance: float,
    tell: Callable[[GroupProgress], None] = lambda _: None,
    asks: Mapping[str, Ask] | None = None,
    draw: Callable[[], int] = drawn_seed,
) -> CalibrationResult:
    """Compare each judge, by name, with the labels; `tell` is called for each group.

    `asks` replaces judges, by name. `draw`: the seed of the order in which all judges see a group's trajectories.

    Raises:
        LabelsInvalid: a label's group, or a trajectory of it, is not in the record.
        JudgeMisconfigured: a name is not a judge, or no judge is set.
        JudgeDown: a judge never answered.
    """
    by_name = {name: judge_settings(settings, name) for name in names}  # raises before any judge is asked
    groups, by_people = await _labelled_groups(project, labels)
    orders = {group.id: draw() for group in groups}
    results, candidates = [], []
    for name, recipe in by_name.items():
        hear = partial(_report, tell, name, len(groups))
        judged = await judge_all(project, groups, recipe, hear, (asks or {}).get(name), orders)
        by_group = count_pairs(pair for one in judged for pair in _pairs(one, by_people[one.group]))
        array = stack_counts(by_group, [group.id for group in groups])
        spent, there = sum((one.spent for one in judged), JudgeUsage()), [one for one in judged if one.why is None]
        seconds = sum(one.seconds for one in there) / len(there) if there else 0.0
        unjudged = {one.group: one.why for one in judged if one.why is not None}
        known = measure_agreements(name, there, by_group)
        pairs, figures = decided_pairs(array), judge_figures(array)
        results.append(JudgeResult(name, recipe.model, pairs, len(there), figures, unjudged, spent, seconds, known))
        candidates.append(JudgeCandidate(name, array, results[-1].usd))
    return CalibrationResult(
        results, choose_judge(candidates, tolerance), tolerance, len(labels), len(groups), list(names)
    )


def measure_agreements(name: str, judged: Sequence[JudgedGroup], counts: Mapping[str, Counts]) -> list[JudgeAgreement]:
    """The pairwise accuracy of a judge by the hash that its scores have. Fewer than `FEWEST_PAIRS` pairs give none.

    `counts`: by group, of those that have labelled pairs.
    """
    groups_of: dict[str, list[str]] = {}
    for one in judged:
        if one.judge_hash is not None:
            groups_of.setdefault(one.judge_hash, []).append(one.group)
    found = []
    for judge_hash, groups in groups_of.items():
        own = stack_counts(counts, groups)
        if (pairs := decided_pairs(own)) >= FEWEST_PAIRS:
            found.append(JudgeAgreement(judge_hash, name, float(accuracy(own.sum(0))), pairs))
    return found


def _report(tell: Callable[[GroupProgress], None], judge: str, groups: int, judged: JudgedGroup) -> None:
    tell(GroupProgress(judge, groups, judged))


def _pairs(judged: JudgedGroup, labels: Sequence[Mapping[str, float]]) -> list[LabelledPair]:
    return [
        pair
        for people in labels
        for pair in labelled_pairs(judged.group, people, judged.scores, places=judged.places, lengths=judged.lengths)
    ]


async def _labelled_groups(
    project: Project, labels: Sequence[PeopleComparison]
) -> tuple[list[GroupView], dict[str, list[Mapping[str, float]]]]:
    """The labelled groups, and the labels of each by trajectory id."""
    groups: dict[str, GroupView] = {}  # by the id or external id in the label
    by_people: dict[str, list[Mapping[str, float]]] = {}
    for one in labels:
        if one.group not in groups:
            try:
                groups[one.group] = await load_group(project.store, await find_group(project, one.group))
            except NotFound as e:
                raise LabelsInvalid(f"{one.where or 'a label'}: {e}") from e
        group = groups[one.group]
        by_people.setdefault(group.id, []).append(_by_id(group, one))
    return list({group.id: group for group in groups.values()}.values()), by_people


def _by_id(group: GroupView, one: PeopleComparison) -> dict[str, float]:
    known = {member.external_id: member.id for member in group.members if member.external_id is not None}
    known |= {member.id: member.id for member in group.members}
    if unknown := [run for run in one.scores if run not in known]:
        raise LabelsInvalid(f"{one.where or 'a label'}: group {one.group!r:.80} has no trajectory {unknown[0]!r:.80}")
    return {known[run]: score for run, score in one.scores.items()}
