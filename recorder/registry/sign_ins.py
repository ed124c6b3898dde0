"""Who is signed in to the pages: a token that a browser keeps, which stands for a key while that is in force.

Owns: making, checking and ending them. Refuses: cookies (`proxy.dashboard.sign_in`), and what a key may do
(`recorder.registry.keys`).
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from sqlalchemy import delete, insert, select

from recorder.registry.keys import KeyView, in_force
from recorder.store.database import Store
from recorder.store.schema import sign_ins
from recorder.store.sql import now

LASTS_S: Final = 12 * 3600.0


async def sign_in(store: Store, key: KeyView) -> str:
    """A new token for a key. Those that are past their time are taken away."""
    token = secrets.token_urlsafe(32)
    fields = {"hash": _hash(token), "project_id": key.project_id, "key_id": key.id}
    async with store.write() as conn:
        await conn.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now()))
        await conn.execute(insert(sign_ins).values(**fields, expires_at=now() + LASTS_S))
    return token


async def signed_in(store: Store, token: str) -> KeyView | None:
    """The key that a token stands for, unless the token or the key is unknown, ended or past its time."""
    query = select(sign_ins.c.key_id).where(sign_ins.c.hash == _hash(token), sign_ins.c.expires_at > now())
    async with store.read() as conn:
        key_id = (await conn.execute(query)).scalar_one_or_none()
        return await in_force(conn, key_id) if key_id is not None else None


async def sign_out(store: Store, token: str) -> None:
    """End a token."""
    async with store.write() as conn:
        await conn.execute(delete(sign_ins).where(sign_ins.c.hash == _hash(token)))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
