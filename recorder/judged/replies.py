"""What each of several requests about one group came to: the reply, what it says of each run, or why there is none.

Owns: these rows, of scores that several requests made; where one did, its reply is the score's own column. Refuses:
scores (`recorder.work.scores`), reading replies (the judge).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.schema import judge_replies


@dataclass(frozen=True, slots=True)
class Words:
    """What one reply says of one run: a score in 0..1, why, and the sub-scores that it is the mean of."""

    trajectory_id: str
    score: float
    explanation: str
    subscores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewReply:
    """One request of several about a group; `number` counts them from 0.

    `reply` None: none could be read, and `failed` says why; or one of the group's runs was deleted. `verdicts`: in the
    order in which the judge saw the runs. `weight`: how much it counts beside the others.
    """

    number: int
    judge_model: str
    judge_version: str | None
    weight: float
    reply: str | None
    failed: str | None
    verdicts: Sequence[Words] = ()
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    latency_s: float | None = None


async def write(conn: AsyncConnection, score_id: str, replies: Sequence[NewReply]) -> None:
    """Write a score's replies, inside the caller's transaction."""
    if replies:
        await conn.execute(insert(judge_replies), [{"score_id": score_id, **_row(one)} for one in replies])


async def of_scores(conn: AsyncConnection, score_ids: Iterable[str]) -> Mapping[str, tuple[NewReply, ...]]:
    """The replies of scores, by the scores' ids; a score that one request made, or none, has none here."""
    query = select(judge_replies).where(judge_replies.c.score_id.in_(list(score_ids)))
    found: defaultdict[str, list[NewReply]] = defaultdict(list)
    for row in await conn.execute(query.order_by(judge_replies.c.score_id, judge_replies.c.number)):
        found[row.score_id].append(sql.view(NewReply, row, verdicts=_verdicts(row.verdicts)))
    return {id_: tuple(replies) for id_, replies in found.items()}


def _row(one: NewReply) -> dict[str, Any]:
    verdicts = json.dumps([asdict(words) for words in one.verdicts], ensure_ascii=False)
    values = asdict(one) | {"verdicts": verdicts}
    return {name: sql.storable(value) if isinstance(value, str) else value for name, value in values.items()}


def _verdicts(written: str | None) -> tuple[Words, ...]:
    return tuple(Words(**one) for one in json.loads(written)) if written else ()
