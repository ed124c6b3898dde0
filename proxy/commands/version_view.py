"""One version on a terminal: its evidence, the held-out tasks that it won and lost, and what it was trained on.

Owns: the lines. Pure. Refuses: the view itself (`recorder.views.versions.detail`), and printing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from recorder.base.terminal import format_number

if TYPE_CHECKING:
    from recorder.views.versions.detail import VersionDetail
    from recorder.views.versions.evidence import EvidenceSentence
    from recorder.views.versions.held_out import HeldOutComparison, HeldOutTask, Unit
    from recorder.views.versions.training_data import TrainingData

Line = tuple[str, str]  # text and style
_HEAD: Final = "bold"
_STYLES: Final = {True: "green", False: "red", None: ""}


def version_lines(detail: VersionDetail) -> Iterator[Line]:
    """Return the lines about a version."""
    version = detail.version
    yield f"{version.name}: {version.state}{f', trained from {version.parent}' if version.parent else ''}", _HEAD
    if detail.evidence:
        yield "evidence", _HEAD
        yield from map(_sentence, detail.evidence)
    for found in detail.held_out:
        yield from _tasks("better", found, found.won, found.won_count)
        yield from _tasks("worse", found, found.lost, found.lost_count)
    if detail.trained_on is not None:
        yield "trained on", _HEAD
        yield from _training(detail.trained_on)


def _sentence(one: EvidenceSentence) -> Line:
    mark = {True: " (kept)", False: " (not kept)", None: ""}[one.within]
    return f"  {one.text}{mark}", _STYLES[one.within]


def _tasks(word: str, found: HeldOutComparison, tasks: tuple[HeldOutTask, ...], count: int) -> Iterator[Line]:
    if not count:
        return
    more = f", {len(tasks)} of {count}" if count > len(tasks) else ""
    yield f"{word} than {found.about.beside}, by {found.about.source} ({found.about.unit}){more}", _HEAD
    for one in tasks:
        values = [_value(value, found.about.unit) for value in (one.before, one.after)]
        title = one.scenario or one.task or "a recorded task"
        yield f"  {values[0]} → {values[1]}  {title}", "green" if one.rise > 0 else "red"
        yield f"    hone show {one.trajectory_before}; hone show {one.trajectory_after}", "dim"


def _value(value: float, unit: Unit) -> str:
    return format_number(value) if unit == "reward" else f"{100 * value:.0f} %"


def _training(data: TrainingData) -> Iterator[Line]:
    sources = ", ".join(f"{origin} {count}" for origin, count in data.sources.items())
    yield f"  trajectories of scored groups: {data.trajectories}{f' ({sources})' if sources else ''}", ""
    for one in data.objectives:
        passes = f", {one.times} passes" if one.times > one.count else ""
        yield f"  objective {one.objective}: {one.count} × {one.kind}{passes}", ""
    for task in data.tasks:
        title = task.task or task.scenario or task.groups[0].external_id or task.groups[0].id
        yield f"  {task.trained} at {title}, mean reward {format_number(task.reward)}", ""
    if data.task_count > len(data.tasks):
        more = data.task_count - len(data.tasks)
        yield f"  and {more} more task{'' if more == 1 else 's'}", ""
    for excluded in data.excluded:
        yield f"  excluded: {excluded.trajectories} ({excluded.code}). {excluded.why}", ""
