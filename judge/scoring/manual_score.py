"""Score one group at a person's request (`hone score ID`).

Owns: which group is meant, whether it may be scored now, and making the score its current one. Refuses: scoring
(`judge.scoring.group_score`) and the output (`judge.commands.score_view`).
"""

from __future__ import annotations

from dataclasses import replace

from judge.errors import JudgeUnavailable
from judge.scoring.cross_check import assign_judge
from judge.scoring.group_score import GroupScore, assume_ended, score_group
from judge.scoring.setup import open_judge_context
from judge.settings import JudgeSettings
from recorder.errors import Conflict
from recorder.queue import claims
from recorder.queue.groups.lookup import find_group
from recorder.queue.judging import scores
from recorder.queue.judging.rescoring import rescorable_reasons
from recorder.queue.judging.scores import NewScore
from recorder.queue.leases import holder_name
from recorder.states import GroupState, TrajectoryState
from recorder.store.database import Project, Store
from recorder.views.lists.filters import GroupFilter
from recorder.views.lists.groups import list_groups
from recorder.views.lists.short_ids import expand_id
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_group


async def score_one(
    project: Project,
    settings: JudgeSettings,
    group: str,
    *,
    lease_s: float,
    save: bool,
    again: bool,
    recipe: str | None = None,
) -> tuple[GroupView, GroupScore]:
    """Score a group by its id or external id; with `save` the score becomes its current one.

    `recipe`: a known judge recipe to try in the place of the one that judges the group.

    With `again`, the judge is asked although a stored reply exists, and the score is saved even if the group was
    excluded because its version was rejected: it may be trained on again.

    Raises JudgeError, NotFound, and Conflict if the group is open, or is to be saved and cannot be claimed.
    """
    found = await load_group(project.store, await _named(project, group))
    if open_ := open_group_note(found):
        raise Conflict(f"{open_} `hone score --open {found.id}` judges it as it is, `hone close {found.id}` closes it.")
    if recipe is not None:
        found = replace(found, judge_recipe=recipe)
    async with open_judge_context(settings, project, keep=save, again=again) as context:
        scored = await score_group(found, (await assign_judge(project.store, found, context)).scores)
    if save and not await make_current(project.store, found.id, scored.new, lease_s, again=again):
        raise Conflict(
            f"group {found.id} cannot be given a score: it is neither ready, unscored nor scored, or another process "
            "works on it. Nothing was saved. If it was excluded because its version was rejected, add --again."
        )
    return found, scored


async def score_open(
    project: Project, settings: JudgeSettings, group: str | None
) -> list[tuple[GroupView, GroupScore | str]]:
    """Score an open group, or the newest open groups, as if their trajectories ended now; nothing is written.

    If one cannot be judged, the reason takes the place of its score. Raises NotFound, and Conflict for a closed group.
    """
    judged: list[tuple[GroupView, GroupScore | str]] = []
    async with open_judge_context(settings, project, keep=False) as context:
        for group_id in await _open_groups(project, group):
            found = await load_group(project.store, group_id)
            try:
                by = await assign_judge(project.store, found, context)
                judged.append((found, await score_group(assume_ended(found), by.scores)))
            except JudgeUnavailable as e:
                judged.append((found, str(e)))
    return judged


async def make_current(store: Store, group_id: str, score: NewScore, lease_s: float, *, again: bool) -> bool:
    """Make a score its group's current one; False, and nothing is written, if the group is not free.

    `again`: also if it was excluded because its version was rejected.
    """
    # Claimed only now, so that a group keeps its score if the judge fails.
    claim = await claims.claim_one_for_judging(
        store, group_id, holder_name(), lease_s, ended_for=rescorable_reasons(anew=again)
    )
    if claim is not None:
        await scores.record_score(store, claim, score)
    return claim is not None


def open_group_note(group: GroupView) -> str | None:
    """That a group is still open, and what it waits for; None if it is not open."""
    if group.state != GroupState.OPEN:
        return None
    running = sum(member.state == TrajectoryState.OPEN for member in group.members)
    waits = (
        f"{running} of its {len(group.members)} trajectories have not ended"
        if running
        else "more trajectories may join it"
    )
    return f"group {group.id} is still open: {waits}."


async def _open_groups(project: Project, group: str | None) -> list[str]:
    if group is None:
        page = await list_groups(project, GroupFilter(states=(GroupState.OPEN,)))
        return [one.id for one in page.lines]
    named = await load_group(project.store, await _named(project, group))
    if named.state is not GroupState.OPEN:
        raise Conflict(f"group {named.id} is no longer open but {named.state}: score it without --open")
    return [named.id]


async def _named(project: Project, group: str) -> str:
    return await find_group(project, await expand_id(project, group))
