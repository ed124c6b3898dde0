"""What a judge was asked: kept with the score that came of it, as compressed JSON.

Owns: these rows. Refuses: scores (`recorder.work.scores`), writing prompts.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping, Sequence

from sqlalchemy import and_, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import prompts, scores

Messages = Sequence[Mapping[str, str]]  # to a judge


async def packed(messages: Messages | None) -> bytes | None:
    """Messages as they are stored."""
    return None if messages is None else await asyncio.to_thread(_pack, messages)


async def write(conn: AsyncConnection, score_id: str, prompt: bytes) -> None:
    """Write what a score's judge was asked, inside the caller's transaction."""
    await conn.execute(insert(prompts).values(score_id=score_id, packed=prompt))


async def prompt_of(store: Store, score_id: str) -> Messages | None:
    """What a judge was asked; None: nobody was, or it is there no more. Of several requests the first.

    A reply that was read again has its prompt at the score that was paid for: the same under one seed, but for the
    nonce.
    """
    this, paid = scores.alias("this"), scores.c
    own = select(prompts.c.packed).where(prompts.c.score_id == score_id)
    its = [paid[name] == this.c[name] for name in ("project_id", "prompt_hash", "recipe_hash", "order_seed")]
    same = select(prompts.c.packed).select_from(this).join(scores, and_(*its))
    same = same.join(prompts, prompts.c.score_id == paid.id).where(this.c.id == score_id)
    async with store.read() as conn:
        found = (await conn.execute(own)).scalar_one_or_none()
        if found is None:
            found = (await conn.execute(same.order_by(paid.created_at.desc()).limit(1))).scalar_one_or_none()
    return None if found is None else await asyncio.to_thread(_unpack, found)


def _pack(messages: Messages) -> bytes:
    text = sql.storable(json.dumps([dict(message) for message in messages], ensure_ascii=False))
    return zlib.compress(text.encode())


def _unpack(packed: bytes) -> Messages:
    found: Messages = json.loads(zlib.decompress(packed))
    return found
