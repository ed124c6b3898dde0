"""Scores: immutable rows with a judge's verdict on a group, and the state changes that follow.

Owns: score rows, their parts, the cache by prompt hash, and the states scored, unscored, measured and excluded.
Refuses: requests to a judge, and the form of prompts and replies (`recorder.queue.judging.records`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, exists, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.queue.campaigns import NAMED_RECIPE
from recorder.queue.claims import GroupClaim
from recorder.queue.groups.closure import list_for_measurement, write_exclusions
from recorder.queue.groups.disputes import CODE as DISPUTED
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.groups.uses import is_trainable
from recorder.queue.judging import records
from recorder.queue.judging.records import JudgePrompt, Messages, NewReply
from recorder.reasons import reason_tone
from recorder.states import GroupState, Tone
from recorder.store import ledger, sql
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import campaigns, groups, score_parts, scores, trajectories
from recorder.store.sql import now
from recorder.store.statement import equals_literal
from recorder.store.transitions import guarded_update, move_state

PAGE: Final = 200  # scores per SELECT: a long read would prevent SQLite from reusing its WAL
REWARD: Final = "reward"  # the part that combines the others, and that is trained on
# Codes of unscored groups that wait for their users. Nothing is wrong with them.
FOR_USERS: Final = frozenset({"waiting_for_feedback", "waiting_for_follow_up"})


@dataclass(frozen=True, slots=True)
class NewPart:
    """One number about one trajectory. `value`: None if it is missing; then `explanation` says why.

    `unasked`: no judge gave the value, because the trajectories of the group are identical. It means a tie in the group
    and cannot be compared with other groups, so means over trajectories omit it.
    """

    trajectory_id: str
    part: str
    value: float | None
    weight: float | None = None
    explanation: str | None = None
    unasked: bool = False


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The result of judging a group: its recipe and judge, the replies, and their cost.

    `prompt_hash`: None if no request was sent (checks alone). If several requests made the score, `replies` has each
    reply and `reply` is None. `tokens_cached`: the input tokens that the provider read from its cache at a lower price.
    `agreement`: of several replies, the mean of Kendall's tau-b over each two.
    """

    recipe_hash: str
    judge_model: str | None
    judge_version: str | None
    prompt_hash: str | None
    order_seed: int | None
    reply: str | None
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float | None
    agreement: float | None
    replies: Sequence[NewReply]

    def row_fields(self) -> dict[str, Any]:
        """Return the fields of this class by name, without those of a subclass."""
        return {one.name: getattr(self, one.name) for one in fields(ScoreRow)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewScore(ScoreRow):
    """A score of a group, to be written."""

    absolute: bool = False  # the rewards can be compared with other groups: no ranking changed them
    judge_hash: str | None = None  # of the judge whose verdicts are in the rewards; None: no model's are
    follow_up: bool = False  # what users wrote next has a part in the rewards
    parts: Sequence[NewPart] = ()
    prompt: Messages | None = None  # the prompt of the reply, if the request was sent just now
    prompts: Sequence[JudgePrompt] = ()  # the prompts of several requests; `prompt` is None then
    run_prompts: Mapping[str, Messages] = field(default_factory=dict)  # the prompts about single trajectories, by id
    disputed: str | None = None  # why the score does not count: the replies disagree, and the group waits for a person


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScore(ScoreRow):
    """A score as it is stored."""

    id: str
    group_id: str
    absolute: bool
    judge_hash: str | None
    follow_up: bool
    created_at: float
    parts: Sequence[NewPart]

    def parts_of(self, trajectory_id: str) -> list[NewPart]:
        """Return the parts about one trajectory: the reward first, then the others by name."""
        own = [part for part in self.parts if part.trajectory_id == trajectory_id]
        return sorted(own, key=lambda part: (part.part != REWARD, part.part))


async def record_score(store: Store, claim: GroupClaim, score: NewScore) -> str:
    """Write a score and make it the group's current one, in one transaction guarded by the claim. Return its id.

    A disputed score is written too, but does not count: its group becomes unscored, and no judge takes it again by
    itself. Raises LeaseLost, and Conflict if a part is about a trajectory of another group or occurs twice.
    """
    prompt = await _packed(score)
    async with store.write() as conn:
        await _require_members(conn, claim.group_id, score.parts)
        score_id = await _insert(conn, claim.project_id, claim.group_id, claim.alias_id, score, prompt)
        if score.disputed is not None:
            await _dispute(conn, claim, score_id, score)
            return score_id
        done: dict[str, Any] = {"current_score_id": score_id, "reason": None}
        measures = await list_for_measurement(conn, [claim.group_id])
        ends_as = GroupState.MEASURED if measures else GroupState.SCORED
        await move_state(
            conn, groups, claim.group_id, ends_as, expect=GroupState.JUDGING,
            owner=claim.owner, epoch=claim.epoch, **done,
        )  # fmt: skip
        return score_id


async def _dispute(conn: AsyncConnection, claim: GroupClaim, score_id: str, score: NewScore) -> None:
    """Make a group wait for a person. The cost is in the score's row, so the ledger does not repeat it."""
    # try_after stays unchanged: feedback that came during judging makes the group due again.
    await move_state(
        conn, groups, claim.group_id, GroupState.UNSCORED, expect=GroupState.JUDGING,
        owner=claim.owner, epoch=claim.epoch, reason=DISPUTED, tries=groups.c.tries + 1, current_score_id=None,
    )  # fmt: skip
    said = {"message": _storable(score.disputed), "agreement": score.agreement, "score": score_id}
    what = {"detail": said, "tries": claim.tries + 1}
    await ledger.write_rows(conn, [LedgerRow(claim.project_id, "group", claim.group_id, DISPUTED, what)])


async def record_history(store: Store, group_id: str, score: NewScore, states: Collection[GroupState]) -> str | None:
    """Write another score; the current one stays. Return its id, or None if the group is not in one of `states`.

    Raises Conflict as `record_score` does.
    """
    query = select(groups).where(groups.c.id == group_id, groups.c.state.in_(states)).with_for_update()
    prompt = await _packed(score)
    async with store.write() as conn:
        row = (await conn.execute(query)).first()
        if row is None:
            return None
        await _require_members(conn, group_id, score.parts)
        return await _insert(conn, row.project_id, group_id, row.alias_id, score, prompt)


async def _packed(score: NewScore) -> bytes | None:
    of_group = [JudgePrompt(None, score.prompt)] if score.prompt is not None else score.prompts
    return await records.pack_prompts(
        [*of_group, *(JudgePrompt(id_, asked) for id_, asked in score.run_prompts.items())]
    )


async def _require_members(conn: AsyncConnection, group_id: str, parts: Sequence[NewPart]) -> None:
    rows = await conn.execute(select(trajectories.c.id).where(trajectories.c.group_id == group_id))
    members = {id_ for (id_,) in rows}
    strangers = {p.trajectory_id for p in parts} - members
    if strangers:
        raise Conflict(f"group {group_id} has no trajectory {', '.join(sorted(strangers))}: nothing was scored")
    if len({(p.trajectory_id, p.part) for p in parts}) != len(parts):
        raise Conflict(f"a score of group {group_id} names a part of a trajectory twice: nothing was scored")


async def _insert(
    conn: AsyncConnection, project_id: str, group_id: str, alias_id: str | None, score: NewScore, prompt: bytes | None
) -> str:
    score_id = new_id("score")
    row = {name: _storable(value) for name, value in score.row_fields().items() if name != "replies"}
    of_group = {"project_id": project_id, "group_id": group_id, "alias_id": alias_id}
    of_rewards = {"absolute": score.absolute, "judge_hash": score.judge_hash, "follow_up": score.follow_up}
    await conn.execute(insert(scores).values(id=score_id, created_at=now(), **of_group, **of_rewards, **row))
    if score.parts:
        rows = [{k: _storable(v) for k, v in asdict(part).items()} for part in score.parts]
        await conn.execute(insert(score_parts), [{"score_id": score_id, **row} for row in rows])
    await records.write_replies(conn, score_id, score.replies)
    if prompt is not None:
        await records.write_prompts(conn, score_id, prompt)
    return score_id


def _storable(value: Any) -> Any:
    """Return a text of a model or reward function in a form that every database can store; other values unchanged."""
    return sql.storable_text(value) if isinstance(value, str) else value


async def mark_unscored(store: Store, claim: GroupClaim, code: str, detail: Any, try_after_s: float) -> None:
    """Mark a group as unscored: it is judged again after `try_after_s`; the ledger has the reason. Raises LeaseLost."""
    async with store.write() as conn:
        await move_state(
            conn, groups, claim.group_id, GroupState.UNSCORED, owner=claim.owner, epoch=claim.epoch,
            reason=code, tries=groups.c.tries + 1, try_after=now() + try_after_s,
        )  # fmt: skip
        what = {"detail": detail, "try_after_s": try_after_s, "tries": claim.tries + 1}
        await ledger.write_rows(conn, [LedgerRow(claim.project_id, "group", claim.group_id, code, what)])


async def exclude_group(store: Store, claim: GroupClaim, code: str, detail: Any = None) -> None:
    """Exclude a claimed group for good, with ledger rows for it and each of its members. Raises LeaseLost.

    A group of a validation, a gate or an evaluation becomes measured instead, with a row for the group alone.
    """
    async with store.write() as conn:
        await exclude_group_in(conn, claim, code, detail)


async def exclude_group_in(conn: AsyncConnection, claim: GroupClaim, code: str, detail: Any = None) -> None:
    """`exclude_group` inside the caller's transaction."""
    measures = await list_for_measurement(conn, [claim.group_id])
    ends_as = GroupState.MEASURED if measures else GroupState.LEFT_OUT
    await move_state(conn, groups, claim.group_id, ends_as, owner=claim.owner, epoch=claim.epoch, reason=code)
    what = detail if isinstance(detail, dict) else {"detail": detail}
    if not measures:
        await write_exclusions(conn, [claim.group_id], code, what)
    elif reason_tone(code) is not Tone.NEUTRAL:  # what the judge could not do
        await ledger.write_rows(conn, [LedgerRow(claim.project_id, "group", claim.group_id, code, what)])


async def exclude_lone_groups(
    project: Project, code: str, detail: dict[str, Any], within_s: float | None = None
) -> int:
    """Exclude ready groups of one trajectory for good, one page in each transaction; return their number.

    Those of a validation, a gate or an evaluation become measured instead, and are not counted.

    Groups of a campaign with a recipe of its own stay, because its judge decides. `within_s`: only groups that became
    ready at most so many seconds ago.
    """
    by_own = select(campaigns.c.id).where(campaigns.c.id == groups.c.campaign_id, NAMED_RECIPE.is_not(None))
    alone = select(trajectories.c.group_id).where(trajectories.c.group_id == groups.c.id)
    alone = alone.group_by(trajectories.c.group_id).having(func.count() == 1)
    ready = select(groups.c.id).where(
        groups.c.project_id == project.id,
        equals_literal(groups.c.state, GroupState.READY),
        exists(alone),
        ~exists(by_own),
    )
    if within_s is not None:
        ready = ready.where(groups.c.ready_at >= now() - within_s)
    left = 0
    while ids := await _page_of(project.store, ready.limit(PAGE)):
        left += await _leave_out(project.store, ids, GroupState.READY, code, detail)
    return left


async def exclude_old_groups(
    project: Project, states: Collection[GroupState], max_age_s: float, alias_id: str | None = None
) -> int:
    """Exclude groups for training that have been complete for longer than `max_age_s`; return their number.

    Groups of campaigns and claimed groups stay. Optionally only of one alias.
    """
    these = [
        groups.c.project_id == project.id,
        groups.c.campaign_id.is_(None),
        groups.c.ready_at < now() - max_age_s,
        is_trainable(),
    ]
    if alias_id is not None:
        these.append(groups.c.alias_id == alias_id)
    left = 0
    for state in states:
        old = select(groups.c.id).where(*these, equals_literal(groups.c.state, state))
        while ids := await _page_of(project.store, old.limit(PAGE)):
            left += await _leave_out(project.store, ids, state, GroupCode.TOO_OLD, {"max_age_s": max_age_s})
    return left


async def _leave_out(store: Store, ids: Sequence[str], state: GroupState, code: str, detail: dict[str, Any]) -> int:
    """Exclude groups that are still in `state`, and return their number; those for measurement become measured."""
    async with store.write() as conn:
        measures = await list_for_measurement(conn, ids)
        if measures:
            end = guarded_update(groups, GroupState.MEASURED, expect=state, reason=code)
            await conn.execute(end.where(groups.c.id.in_(measures)))
        out = guarded_update(groups, GroupState.LEFT_OUT, expect=state, reason=code)
        others = [id_ for id_ in ids if id_ not in measures]
        gone = list((await conn.execute(out.where(groups.c.id.in_(others)).returning(groups.c.id))).scalars())
        await write_exclusions(conn, gone, code, detail)
    return len(gone)


async def _page_of(store: Store, query: Select[str]) -> list[str]:
    async with store.read() as conn:
        return [id_ for (id_,) in await conn.execute(query)]


async def find_cached_score(project: Project, recipe_hash: str, prompt_hash: str) -> StoredScore | None:
    """Return the newest score for the same prompt under the same recipe, or None."""
    query = (
        select(scores)
        .where(
            scores.c.project_id == project.id,
            scores.c.recipe_hash == recipe_hash,
            scores.c.prompt_hash == prompt_hash,
        )
        .order_by(scores.c.created_at.desc(), scores.c.id.desc())
        .limit(1)
    )
    async with project.store.read() as conn:
        found = await load_scores(conn, query)
    return found[0] if found else None


async def get_score(store: Store, score_id: str) -> StoredScore:
    """Return a score by its id. Raises NotFound."""
    found = await get_scores(store, [score_id])
    if not found:
        raise NotFound(f"no score {score_id}")
    return found[score_id]


async def get_scores(store: Store, score_ids: Collection[str]) -> dict[str, StoredScore]:
    """Return scores by their ids, with two SELECTs for each page; missing ones are omitted."""
    found: dict[str, StoredScore] = {}
    ids = list(score_ids)
    for page in (ids[at : at + PAGE] for at in range(0, len(ids), PAGE)):
        async with store.read() as conn:
            rows = select(scores).where(scores.c.id.in_(page))
            found |= {score.id: score for score in await load_scores(conn, rows)}
    return found


async def list_scores(store: Store, group_id: str) -> list[StoredScore]:
    """Return every score that a group ever got, oldest first."""
    query = select(scores).where(scores.c.group_id == group_id).order_by(scores.c.created_at, scores.c.id)
    async with store.read() as conn:
        return await load_scores(conn, query)


async def score_rewards(store: Store, score_id: str) -> dict[str, float | None]:
    """Return a score's rewards by trajectory id; None for a missing reward."""
    query = select(score_parts.c.trajectory_id, score_parts.c.value).where(
        score_parts.c.score_id == score_id, score_parts.c.part == REWARD
    )
    async with store.read() as conn:
        return {row.trajectory_id: row.value for row in await conn.execute(query)}


def is_ranked() -> ColumnElement[bool]:
    """Return whether a judge's ranking has a part in a score's rewards: they mean something within its group only.

    A score of checks has no prompt hash. A ranking that was only measured, with weight 0, leaves the rewards absolute.
    """
    return and_(scores.c.prompt_hash.is_not(None), ~scores.c.absolute)


def part_rewards(parts: Iterable[NewPart]) -> dict[str, float | None]:
    """Return the rewards in a score's parts by trajectory id."""
    return {part.trajectory_id: part.value for part in parts if part.part == REWARD}


def split_reward(parts: Iterable[NewPart]) -> tuple[NewPart | None, list[NewPart]]:
    """Split one trajectory's parts into the reward, None if it has none, and the others."""
    reward: NewPart | None = None
    others: list[NewPart] = []
    for part in parts:
        if part.part == REWARD and reward is None:
            reward = part
        else:
            others.append(part)
    return reward, others


def unasked_trajectories(parts: Iterable[NewPart]) -> set[str]:
    """Return the trajectories with a reward that no judge gave."""
    return {part.trajectory_id for part in parts if part.part == REWARD and part.unasked}


async def wait_for_scores(store: Store, group_ids: Collection[str]) -> dict[str, str | None]:
    """Wait until groups are judged; return their current scores' ids, None for a group that could not be scored.

    The caller decides how long to wait (`asyncio.timeout`).
    """
    with store.watch.on(Topic.GROUPS) as news:
        while True:
            await news.wait()
            scored, waiting = await current_scores(store, group_ids)
            if not waiting:
                return scored


async def current_scores(store: Store, group_ids: Collection[str]) -> tuple[dict[str, str | None], int]:
    """Return groups' current scores' ids, None for a group without one, and the number that still wait for a judge."""
    waits = (GroupState.OPEN, GroupState.READY, GroupState.JUDGING)
    query = select(groups.c.id, groups.c.state, groups.c.current_score_id).where(groups.c.id.in_(sorted(group_ids)))
    async with store.read() as conn:
        rows = list(await conn.execute(query))
    scored = {row.id: row.current_score_id for row in rows if row.state in (GroupState.SCORED, GroupState.MEASURED)}
    return {id_: scored.get(id_) for id_ in group_ids}, sum(row.state in waits for row in rows)


async def load_scores(conn: AsyncConnection, rows: Select[Any]) -> list[StoredScore]:
    """Return scores with their parts and replies, in the order of `rows`, a query for rows of `scores`."""
    found = list(await conn.execute(rows))
    ids = [row.id for row in found]
    if not ids:
        return []
    query = select(score_parts).where(score_parts.c.score_id.in_(ids))
    of_score: dict[str, list[NewPart]] = defaultdict(list)
    for part in await conn.execute(query.order_by(score_parts.c.trajectory_id, score_parts.c.part)):
        of_score[part.score_id].append(sql.as_view(NewPart, part))
    said = await records.load_replies(conn, ids)
    return [sql.as_view(StoredScore, row, parts=tuple(of_score[row.id]), replies=said.get(row.id, ())) for row in found]
