"""Which groups may be rescored on request, and by which judge recipe each was scored.

Owns: the states and reasons that allow it, filters, reading by page, and requesting one group's rescore. Refuses:
scoring, and writing scores (`recorder.queue.judging.scores`).

By state: `ready` and `unscored` groups have no current score; `scored` ones get a new one. Groups that a step took
(`training`, `tried`, `trained`) keep the score that they were trained with, and the new score is history. `judging`
groups are held by a judge. Excluded groups (`left_out`) may be rescored only if a new score can include them again: if
they were excluded because of their score (`OF_SCORES`) or, on request, because of their version. `open` groups have not
ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.queue.campaigns import ALIAS, REWARD_RECIPE
from recorder.queue.groups.readiness import GroupCode
from recorder.registry import ancestry
from recorder.states import GroupState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import groups, scores
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now
from recorder.store.transitions import move_state

# states of groups that keep their score, because it was trained on
KEEPING: Final = (GroupState.TRAINING, GroupState.TRIED, GroupState.TRAINED)
# reasons of a group: another judge recipe may give a usable score
OF_SCORES: Final = (
    "ruler_needs_two",
    "zero_variance",
    "too_close",
    "judge_by_chance",
    "reward_missing",
    GroupCode.CHECK_UNDECIDED,
    GroupCode.NO_FOLLOW_UP,
)
REQUESTED: Final = "asked_anew"  # ledger code of a group: a rescore was requested, with who and why
PAGE: Final = 200
_MARKED: Final = (GroupState.SCORED, GroupState.UNSCORED)  # a judge takes these after `try_after`
_ENDED: Final = (GroupState.LEFT_OUT, GroupState.MEASURED)
_STATES: Final = (GroupState.READY, GroupState.UNSCORED, GroupState.SCORED, GroupState.JUDGING, *KEEPING)


@dataclass(frozen=True, slots=True)
class RescoreCandidate:
    """One group. `recipe_hash`: of its current score, or of its newest if the current one stays; None: no score.

    `reason`: why it is excluded. `alias` and `judge_recipe` (its campaign's) determine its current judge recipe.
    """

    id: str
    state: GroupState
    reason: str | None
    alias_id: str | None
    alias: str | None
    campaign_id: str | None
    judge_recipe: str | None
    scenario_id: str | None
    recipe_hash: str | None


def rescorable_reasons(*, anew: bool) -> tuple[str, ...]:
    """Return the reasons of excluded or measured groups that a new score can end; `anew`: also those of versions."""
    return (*OF_SCORES, *ancestry.OF_VERSIONS) if anew else OF_SCORES


async def list_rescorable(
    project: Project,
    *,
    anew: bool = False,
    alias_id: str | None = None,
    campaign_id: str | None = None,
) -> list[RescoreCandidate]:
    """Yield the groups of a project that may be rescored, oldest first; optionally of one alias or campaign.

    `anew`: also groups that were excluded because of their version.
    """
    ended = and_(groups.c.state.in_(_ENDED), groups.c.reason.in_(rescorable_reasons(anew=anew)))
    measured = and_(groups.c.state == GroupState.MEASURED, groups.c.reason.is_(None))  # it has a score
    wanted = [groups.c.project_id == project.id, or_(groups.c.state.in_(_STATES), ended, measured)]
    wanted += [groups.c.alias_id == alias_id] if alias_id is not None else []
    wanted += [groups.c.campaign_id == campaign_id] if campaign_id is not None else []
    # The ids first: with these conditions and an order, SQLite would read the recipes of all groups for each page.
    async with project.store.read() as conn:
        ids = sorted((await conn.execute(select(groups.c.id).where(*wanted))).scalars())  # ids begin with the time
    found: list[RescoreCandidate] = []
    for page in (ids[at : at + PAGE] for at in range(0, len(ids), PAGE)):
        async with project.store.read() as conn:
            rows = list(await conn.execute(_with_recipes().where(groups.c.id.in_(page)).order_by(groups.c.id)))
        found += [sql.as_view(RescoreCandidate, row, state=GroupState(row.state)) for row in rows]
    return found


async def request_rescore(project: Project, group_id: str, *, by: str, why: str) -> None:
    """Request a rescore of a group (internal id) with new prompts, and record by whom and why.

    It keeps its score until there is a new one; trainers wait for that. A group that was excluded because of its score
    or its version waits for a judge again. Raises NotFound, and Conflict if a judge or a step holds it or it is open.
    """
    async with project.store.write() as conn:
        row = (await conn.execute(select(groups).where(_this(project.id, group_id)).with_for_update())).first()
        if row is None:
            raise NotFound(f"no group {group_id!r} in project {project.id!r}")
        await _put_before_judge(conn, row)
        detail = {"by": by, "why": why}
        await ledger.write_rows(conn, [LedgerRow(project.id, "group", group_id, REQUESTED, detail)])


async def needs_new_prompt(store: Store, group_id: str) -> bool:
    """Whether a rescore was requested since the group's last score; then stored replies are not used."""
    asked = select(func.max(ledger_rows.c.at)).where(
        ledger_rows.c.object_kind == "group", ledger_rows.c.object_id == group_id, ledger_rows.c.code == REQUESTED
    )
    scored = select(func.max(scores.c.created_at)).where(scores.c.group_id == group_id)
    async with store.read() as conn:
        asked_at = (await conn.execute(asked)).scalar_one()
        scored_at = (await conn.execute(scored)).scalar_one()
    return asked_at is not None and (scored_at is None or asked_at >= scored_at)


async def _put_before_judge(conn: AsyncConnection, row: Any) -> None:
    if (why_not := refusal_reason(GroupState(row.state), row.reason)) is not None:
        raise Conflict(f"group {row.id} cannot be rescored: {why_not}.")
    if row.state in _MARKED or (row.state == GroupState.MEASURED and row.reason is None):
        await conn.execute(update(groups).where(groups.c.id == row.id).values(try_after=now()))
        return
    await move_state(conn, groups, row.id, GroupState.JUDGING, expect=_ENDED)
    await move_state(conn, groups, row.id, GroupState.READY, expect=GroupState.JUDGING, reason=None)


def refusal_reason(state: GroupState, reason: str | None) -> str | None:
    """Return why a group in this state, with this reason, cannot be rescored; None: it can."""
    if state in _MARKED or (state in _ENDED and reason in rescorable_reasons(anew=True)):
        return None
    if state is GroupState.MEASURED and reason is None:
        return None
    detail = {
        GroupState.OPEN: "it is still open: close it, and the judge scores it",
        GroupState.READY: "it waits for the judge already",
        GroupState.JUDGING: "a judge is scoring it",
        GroupState.LEFT_OUT: f"it is excluded for good ({reason})",
        GroupState.MEASURED: f"it is measured, and no judge scores it ({reason})",
    }
    return detail.get(state, f"it is {state}, and keeps the score that it was trained on")


def _this(project_id: str, group_id: str) -> ColumnElement[bool]:
    return and_(groups.c.project_id == project_id, groups.c.id == group_id)


def _with_recipes() -> Select[Any]:
    current = select(scores.c.recipe_hash).where(scores.c.id == groups.c.current_score_id)
    newest = select(scores.c.recipe_hash).where(scores.c.group_id == groups.c.id)
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1)
    recipe = case((groups.c.state.in_(KEEPING), newest.scalar_subquery()), else_=current.scalar_subquery())
    return select(groups, ALIAS, REWARD_RECIPE, recipe.label("recipe_hash"))
