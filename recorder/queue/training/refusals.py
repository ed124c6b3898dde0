"""Groups that a training step refused: the engine's logprobs of their tokens are not the trainer's.

Owns: their mark (a row of the group's ledger), its sentence, and excluding them once they can no longer be checked. A
refused group stays scored, no step takes it, and no failed step is counted against it. Refuses: the rule
(`trainer.step.engine_gap`).

Recorded logprobs do not change. So a refused group is taken again only if the bound is raised. Once another version is
live, its tokens are not fresh any more, and nothing could tell whether they are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, exists, select

from recorder.queue.groups.closure import write_exclusions
from recorder.states import GroupState
from recorder.store import ledger as ledger_rows
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, groups, ledger
from recorder.store.transitions import guarded_update

LOGPROB_GAP: Final = "logprob_gap"  # the ledger's code of a refused group, and of the step that refused it
GAP_ALLOWED: Final = "logprob_gap_allowed"  # of a refused group that steps take again: the bound was raised
HOW_TO_MEND: Final = (
    "The engine needs --logprobs-mode processed_logprobs, and the trainer's weights in its precision, not quantised "
    "otherwise (trainer.quantize); `hone doctor` compares the two. For an engine or a trainer that quantises on "
    "purpose, set trainer.max_logprob_gap (docs/your-vllm.md)"
)


@dataclass(frozen=True, slots=True)
class RefusedGroup:
    """A scored group that no step takes.

    `gap`: the mean difference over its `tokens` fresh tokens, or over those of the parent's probe, in nats, of which
    `bound` is the largest that is accepted; `version_id`: the version that sampled them.
    """

    group_id: str
    gap: float
    bound: float
    tokens: int
    version_id: str


def describe_gap(gap: float, bound: float, tokens: int) -> str:
    """How far an engine is from the trainer, in words. `HOW_TO_MEND` goes with it where a person can act."""
    return (
        f"engine and trainer differ by {gap:.2g} nats a token over {tokens} tokens that the parent version sampled, "
        f"and at most {bound:g} is accepted"
    )


def describe_probe_gap(gap: float, bound: float) -> str:
    """`describe_gap` of a step with few such tokens: by the probe of its parent version."""
    return (
        f"engine and trainer differ by {gap:.2g} nats a token over the probe of the parent version, which sampled few "
        f"of the step's tokens, and at most {bound:.2g} is accepted"
    )


def refusal_row(project_id: str, refused: RefusedGroup) -> LedgerRow:
    """The mark of a refused group."""
    detail = {
        "gap": refused.gap,
        "bound": refused.bound,
        "tokens": refused.tokens,
        "version_id": refused.version_id,
    }
    return LedgerRow(project_id, "group", refused.group_id, LOGPROB_GAP, detail)


def is_refused() -> ColumnElement[bool]:
    """Whether a group of the outer query is refused: marked, and not allowed since."""
    mark, later = ledger.alias(), ledger.alias()
    allowed = exists().where(*_marks(later, groups.c.id, GAP_ALLOWED), later.c.id > mark.c.id)
    return exists().where(*_marks(mark, groups.c.id, LOGPROB_GAP), ~allowed)


def _marks(table: Any, group_id: ColumnElement[str], code: str) -> tuple[ColumnElement[bool], ...]:
    its = (table.c.project_id == groups.c.project_id, table.c.object_kind == "group", table.c.object_id == group_id)
    return *its, table.c.code == code


async def list_refused_groups(store: Store, alias_id: str, *, of_campaigns: bool = True) -> list[RefusedGroup]:
    """The refused groups of an alias that are still scored, the last refused one last; `of_campaigns`: theirs too."""
    query = (
        select(groups.c.id, ledger.c.detail)
        .join(aliases, aliases.c.id == groups.c.alias_id)
        .join(ledger, and_(*_marks(ledger, groups.c.id, LOGPROB_GAP)))
        .where(groups.c.project_id == aliases.c.project_id, groups.c.state == GroupState.SCORED)
        .where(groups.c.alias_id == alias_id, is_refused())
        .order_by(ledger.c.id)
    )
    if not of_campaigns:
        query = query.where(groups.c.campaign_id.is_(None))
    async with store.read() as conn:
        newest = {row.id: row.detail for row in await conn.execute(query) if row.detail}
    return [RefusedGroup(group_id, **detail) for group_id, detail in newest.items()]


async def allow_groups(store: Store, project_id: str, refused: Sequence[RefusedGroup], bound: float) -> None:
    """Let steps take the refused groups that are within this bound: the setting was raised."""
    rows = [
        LedgerRow(project_id, "group", one.group_id, GAP_ALLOWED, {"gap": one.gap, "bound": bound})
        for one in refused
        if one.gap <= bound
    ]
    if rows:
        async with store.write() as conn:
            await ledger_rows.write_rows(conn, rows)


async def exclude_uncheckable_groups(store: Store, refused: Sequence[RefusedGroup], live_version_id: str) -> list[str]:
    """Exclude the refused groups that another version than the live one sampled, for good; return their ids."""
    ids = [one.group_id for one in refused if one.version_id != live_version_id]
    if not ids:
        return []
    excluded = guarded_update(groups, GroupState.LEFT_OUT, expect=GroupState.SCORED, reason=LOGPROB_GAP)
    async with store.write() as conn:
        gone = list((await conn.execute(excluded.where(groups.c.id.in_(ids)).returning(groups.c.id))).scalars())
        await write_exclusions(conn, gone, LOGPROB_GAP, {"live": live_version_id})
    return gone
