"""The first turns of a drift set's members: what each version is asked, to see what it has forgotten.

Owns: which call of a member is its first turn, and whether the members' rewards hold outside their groups. Refuses: who
is in the set (`recorder.queue.training.drift_set`), asking and judging (`proxy.gate.drift_answers`).

Members of campaigns are left out: a campaign's recipe and its scenarios are not those of the alias's traffic, and its
validation measures the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from recorder.queue.training import drift_set
from recorder.registry.aliases import AliasView
from recorder.states import CallKind, CallState
from recorder.store.database import Store
from recorder.store.schema import groups, scores, trajectories
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories


@dataclass(frozen=True, slots=True)
class DriftTurn:
    """The first turn of a member, with its recorded answer and their token ids."""

    member: str
    version_id: str  # which answered
    call: CallView
    answer: ChoiceView


@dataclass(frozen=True, slots=True)
class DriftTurns:
    """The first turns of a drift set. `absolute`: the members' rewards hold outside their groups, without a ranking."""

    turns: Sequence[DriftTurn]
    absolute: bool


async def load_drift_turns(store: Store, alias: AliasView, limit: int) -> DriftTurns:
    """Return the first turns of at most `limit` members, the oldest members first."""
    if alias.base_fingerprint is None:
        return DriftTurns([], absolute=False)
    ids = await drift_set.list_members(store, alias.id, alias.base_fingerprint, limit)
    kinds = await _score_kinds(store, ids)
    views = await load_trajectories(store, [id_ for id_ in ids if id_ in kinds], with_tokens=True)
    turns = [turn for view in views if (turn := _first_turn(view, alias)) is not None]
    known = {kind for turn in turns if (kind := kinds[turn.member]) is not None}
    return DriftTurns(turns, absolute=known == {True})


async def _score_kinds(store: Store, ids: Sequence[str]) -> dict[str, bool | None]:
    """Whether the score of each member is absolute, None for one without a score; members of campaigns are omitted."""
    query = (
        select(trajectories.c.id, scores.c.absolute)
        .outerjoin(groups, groups.c.id == trajectories.c.group_id)
        .outerjoin(scores, scores.c.id == groups.c.current_score_id)
        .where(trajectories.c.id.in_(ids), groups.c.campaign_id.is_(None))
    )
    async with store.read() as conn:
        return {row.id: row.absolute for row in await conn.execute(query)}


def _first_turn(view: TrajectoryView, alias: AliasView) -> DriftTurn | None:
    for call in view.calls:
        first = call.parent_call_id is None and call.superseded_by is None and call.alias_id == alias.id
        if first and call.state is CallState.COMPLETE and call.call_kind is CallKind.MAIN and call.version_id:
            answer = next((one for one in call.choices if one.message is not None and one.token_ids), None)
            return DriftTurn(view.id, call.version_id, call, answer) if answer is not None else None
    return None
