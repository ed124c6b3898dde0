"""A version beside another, by the runs that agents made on both: a canary, or one that was promoted a while ago.

Owns: reading the two sides' runs, the rule by which a canary passes or ends, and what a row says of it. Refuses: the
test (`proxy.gate.comparison`), and moving anything (`proxy.versions.on_trial` does).

A canary never passes by its age: what few or no runs were compared with is as unknown as on its first day.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from proxy.gate.comparison import Comparison, Figure, Run, compare
from recorder.reading.compared import compared_runs
from recorder.registry.versions import VersionView
from recorder.store.database import Store
from recorder.store.project import Project

Outcome = Literal["worse", "not_worse", "enough_tasks", "late", "open"]


async def beside(store: Store, version: VersionView, other_id: str) -> Comparison:
    """Compare a version's runs with another's, since it is in the state that it is in."""
    found = await compared_runs(Project(store, version.project_id), {version.id, other_id}, version.state_at)
    runs = [
        Run(
            run.group_id,
            run.version_id == version.id,
            reward=run.reward,
            ranked=run.ranked,
            errored=run.errored,
            tool_failures=run.tool_failures,
            answer_tokens=run.answer_tokens,
            call_s=run.call_s,
        )
        for run in found
    ]
    return compare(runs)


def outcome(found: Comparison, waited_s: float, *, tasks: int, max_age_s: float) -> Outcome:
    """What becomes of a canary that was compared so far, `waited_s` after it began.

    It passes once its reward is shown to be no worse than is tolerated, or was compared on so many `tasks` without any
    figure being shown worse.
    """
    if found.worse_by:
        return "worse"
    if found.not_worse:
        return "not_worse"
    if found.doubts[Figure.REWARD].samples >= tasks:
        return "enough_tasks"
    return "late" if waited_s >= max_age_s else "open"


def figures(found: Comparison) -> dict[str, Any]:
    """What a row says: by what it is worse, if by anything, and what was seen of that and of the reward."""
    told = {"worse_by": sorted(map(str, found.worse_by))} if found.worse_by else {}
    return told | {str(figure): _seen(found, figure) for figure in _told(found)}


def _told(found: Comparison) -> Iterable[Figure]:
    return [f for f in Figure if f in found.worse_by or (f is Figure.REWARD and found.doubts[f].samples)]


def _seen(found: Comparison, figure: Figure) -> dict[str, float]:
    doubt = found.doubts[figure]
    return {"value": doubt.mean, "tasks": doubt.samples, "capital": doubt.capital}
