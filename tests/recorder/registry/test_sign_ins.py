"""A sign-in stands for its key while both are in force, and the store keeps no token."""

from __future__ import annotations

from sqlalchemy import update

from recorder.registry import keys, sign_ins
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import keys as keys_table
from recorder.store.schema import sign_ins as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows


async def test_a_token_stands_for_its_key(store: Store) -> None:
    key, _ = await keys.mint(Project(store, PROJECT), "me", ["read"])
    token = await sign_ins.sign_in(store, key)
    assert await sign_ins.signed_in(store, token) == key
    assert await sign_ins.signed_in(store, token[:-1]) is None
    assert await sign_ins.signed_in(store, "") is None


async def test_the_store_never_holds_the_token(rows: Rows) -> None:
    key, _ = await keys.mint(Project(rows.store, PROJECT), "me", ["read"])
    token = await sign_ins.sign_in(rows.store, key)
    [row] = await rows.all(table)
    assert token not in str(dict(row))


async def test_a_revoked_key_ends_its_sign_ins(store: Store) -> None:
    key, _ = await keys.mint(Project(store, PROJECT), "me", ["read"])
    token = await sign_ins.sign_in(store, key)
    await keys.revoke(Project(store, PROJECT), key.id)
    assert await sign_ins.signed_in(store, token) is None


async def test_a_key_past_its_time_ends_its_sign_ins(store: Store) -> None:
    key, _ = await keys.mint(Project(store, PROJECT), "me", ["read"])
    token = await sign_ins.sign_in(store, key)
    async with store.write() as conn:
        await conn.execute(update(keys_table).values(expires_at=now() - 1))
    assert await sign_ins.signed_in(store, token) is None


async def test_a_sign_in_ends_by_hand_and_no_other_with_it(store: Store) -> None:
    key, _ = await keys.mint(Project(store, PROJECT), "me", ["read"])
    here, there = await sign_ins.sign_in(store, key), await sign_ins.sign_in(store, key)
    await sign_ins.sign_out(store, here)
    assert await sign_ins.signed_in(store, here) is None
    assert await sign_ins.signed_in(store, there) == key


async def test_what_is_past_its_time_is_no_sign_in_and_goes_with_the_next(rows: Rows) -> None:
    key, _ = await keys.mint(Project(rows.store, PROJECT), "me", ["read"])
    old = await sign_ins.sign_in(rows.store, key)
    async with rows.store.write() as conn:
        await conn.execute(update(table).values(expires_at=now() - 1))
    assert await sign_ins.signed_in(rows.store, old) is None
    await sign_ins.sign_in(rows.store, key)
    assert len(await rows.all(table)) == 1
