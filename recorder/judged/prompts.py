"""What a judge was asked: kept with the score that came of it, as compressed JSON.

Owns: these rows. Refuses: scores (`recorder.work.scores`), writing prompts.

Several requests about a group show the same runs in another order and by other ids, so the first is kept whole, and of
each other one the order of its lines and its words (`recorder.judged.retelling`).
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.judged.retelling import read, retell
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import prompts, scores

Messages = Sequence[Mapping[str, str]]  # to a judge


@dataclass(frozen=True, slots=True)
class Asked:
    """What a judge was asked. `trajectory_id`: of which run alone; None: of the group.

    `number`: which of several requests about the group it is, from 0 on. `words`: what these messages have in the place
    of what other requests have, by a name that is the same for all; told to `packed` alone.
    """

    trajectory_id: str | None
    messages: Messages
    number: int = 0
    words: Mapping[str, str] = field(default_factory=dict)


async def packed(asked: Sequence[Asked]) -> bytes | None:
    """What was asked as it is stored; None: nothing was."""
    return await asyncio.to_thread(_pack, asked) if asked else None


async def write(conn: AsyncConnection, score_id: str, prompt: bytes) -> None:
    """Write what a score's judge was asked, inside the caller's transaction."""
    await conn.execute(insert(prompts).values(score_id=score_id, packed=prompt))


async def prompts_of(store: Store, score_id: str, number: int = 0) -> list[Asked]:
    """What a judge was asked for a score, the group first; empty: nobody was, or it is there no more.

    Of several requests about the group it is the one of that `number`. A reply that was read again has its prompt at
    the score that was paid for: the same under one seed, but for the nonce.
    """
    this, paid = scores.alias("this"), scores.c
    own = select(prompts.c.packed).where(prompts.c.score_id == score_id)
    its = [paid[name] == this.c[name] for name in ("project_id", "prompt_hash", "recipe_hash", "order_seed")]
    same = select(prompts.c.packed).select_from(this).join(scores, and_(*its))
    same = same.join(prompts, prompts.c.score_id == paid.id).where(this.c.id == score_id, paid.id != score_id)
    async with store.read() as conn:
        found = (await conn.execute(own)).scalar_one_or_none()
        paid_for = (await conn.execute(same.order_by(paid.created_at, paid.id).limit(1))).scalar_one_or_none()
    return await asyncio.to_thread(_asked, found, paid_for, number)


async def with_prompts(store: Store, score_ids: Collection[str]) -> set[str]:
    """Those of some scores of which it is kept what a judge was asked for them themselves."""
    async with store.read() as conn:
        query = select(prompts.c.score_id).where(prompts.c.score_id.in_(score_ids))
        return set((await conn.execute(query)).scalars())


def _asked(packed: bytes | None, paid_for: bytes | None, number: int) -> list[Asked]:
    """What was asked for a score, and about its group where that was asked for another one alone."""
    found = _unpack(packed, number) if packed is not None else []
    if paid_for is None or any(one.trajectory_id is None for one in found):
        return found
    return [one for one in _unpack(paid_for, number) if one.trajectory_id is None] + found


def _pack(asked: Sequence[Asked]) -> bytes:
    first = next((one for one in asked if one.trajectory_id is None), None)
    rows = [_retold(one, first) if one.number and first is not None else _whole(one) for one in asked]
    return zlib.compress(sql.storable(json.dumps(rows, ensure_ascii=False)).encode())


def _whole(one: Asked) -> dict[str, Any]:
    return {"trajectory_id": one.trajectory_id, "messages": one.messages}


def _retold(one: Asked, first: Asked) -> dict[str, Any]:
    """A later request about the group, by the first one."""
    words = {first.words[name]: word for name, word in one.words.items() if first.words.get(name)}
    pairs = zip(one.messages, first.messages, strict=True)
    lines = [{"role": own["role"], "lines": retell(own["content"], its["content"], words)} for own, its in pairs]
    return {"number": one.number, "words": words, "retold": lines}


def _unpack(packed: bytes, number: int) -> list[Asked]:
    """What was packed, but of several requests about the group that of `number` alone.

    A score of before single runs' prompts were kept has the messages about its group alone.
    """
    found = json.loads(zlib.decompress(packed))
    whole = [Asked(**one) for one in found if "messages" in one] or [Asked(None, found)]
    later = next((one for one in found if one.get("number") == number and number), None)
    of_group = [one for one in whole if one.trajectory_id is None]
    if number:
        of_group = [_read(later, of_group[0])] if later is not None else []
    return of_group + [one for one in whole if one.trajectory_id is not None]


def _read(later: Mapping[str, Any], first: Asked) -> Asked:
    pairs = zip(later["retold"], first.messages, strict=True)
    messages = [
        {"role": own["role"], "content": read(own["lines"], its["content"], later["words"])} for own, its in pairs
    ]
    return Asked(None, messages, later["number"])
