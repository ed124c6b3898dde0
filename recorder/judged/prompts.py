"""What a judge was asked: kept with the score that came of it, as compressed JSON.

Owns: these rows. Refuses: scores (`recorder.work.scores`), writing prompts.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import and_, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import prompts, scores

Messages = Sequence[Mapping[str, str]]  # to a judge


@dataclass(frozen=True, slots=True)
class Asked:
    """What a judge was asked. `trajectory_id`: of which run alone; None: of the group."""

    trajectory_id: str | None
    messages: Messages


async def packed(asked: Sequence[Asked]) -> bytes | None:
    """What was asked as it is stored; None: nothing was."""
    return await asyncio.to_thread(_pack, asked) if asked else None


async def write(conn: AsyncConnection, score_id: str, prompt: bytes) -> None:
    """Write what a score's judge was asked, inside the caller's transaction."""
    await conn.execute(insert(prompts).values(score_id=score_id, packed=prompt))


async def prompts_of(store: Store, score_id: str) -> list[Asked]:
    """What a judge was asked for a score, the group first; empty: nobody was, or it is there no more.

    Of several requests about the group it is the first. A reply that was read again has its prompt at the score that
    was paid for: the same under one seed, but for the nonce.
    """
    this, paid = scores.alias("this"), scores.c
    own = select(prompts.c.packed).where(prompts.c.score_id == score_id)
    its = [paid[name] == this.c[name] for name in ("project_id", "prompt_hash", "recipe_hash", "order_seed")]
    same = select(prompts.c.packed).select_from(this).join(scores, and_(*its))
    same = same.join(prompts, prompts.c.score_id == paid.id).where(this.c.id == score_id, paid.id != score_id)
    async with store.read() as conn:
        found = (await conn.execute(own)).scalar_one_or_none()
        paid_for = (await conn.execute(same.order_by(paid.created_at, paid.id).limit(1))).scalar_one_or_none()
    return await asyncio.to_thread(_asked, found, paid_for)


async def with_prompts(store: Store, score_ids: Collection[str]) -> set[str]:
    """Those of some scores of which it is kept what a judge was asked for them themselves."""
    async with store.read() as conn:
        query = select(prompts.c.score_id).where(prompts.c.score_id.in_(score_ids))
        return set((await conn.execute(query)).scalars())


def _asked(packed: bytes | None, paid_for: bytes | None) -> list[Asked]:
    """What was asked for a score, and about its group where that was asked for another one alone."""
    found = _unpack(packed) if packed is not None else []
    if paid_for is None or any(one.trajectory_id is None for one in found):
        return found
    return [one for one in _unpack(paid_for) if one.trajectory_id is None] + found


def _pack(asked: Sequence[Asked]) -> bytes:
    text = sql.storable(json.dumps([asdict(one) for one in asked], ensure_ascii=False))
    return zlib.compress(text.encode())


def _unpack(packed: bytes) -> list[Asked]:
    """What was packed; a score of before single runs' prompts were kept has the messages about its group alone."""
    found = json.loads(zlib.decompress(packed))
    return [Asked(**one) for one in found] if "messages" in found[0] else [Asked(None, found)]
