"""A sign-in stands for its key while both are in force, and the store keeps no token."""

from __future__ import annotations

from sqlalchemy import update

from recorder.registry import keys
from recorder.store.database import Project, Store
from recorder.store.schema import keys as keys_table
from recorder.store.schema import sign_ins as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows


async def test_a_token_stands_for_its_key(store: Store) -> None:
    key, _ = await keys.create_key(Project(store, PROJECT), "me", ["read"])
    token = await keys.sign_in(store, key)
    assert await keys.find_signed_in_key(store, token) == key
    assert await keys.find_signed_in_key(store, token[:-1]) is None
    assert await keys.find_signed_in_key(store, "") is None


async def test_the_store_never_holds_the_token(rows: Rows) -> None:
    key, _ = await keys.create_key(Project(rows.store, PROJECT), "me", ["read"])
    token = await keys.sign_in(rows.store, key)
    [row] = await rows.all(table)
    assert token not in str(dict(row))


async def test_a_revoked_key_ends_its_sign_ins(store: Store) -> None:
    key, _ = await keys.create_key(Project(store, PROJECT), "me", ["read"])
    token = await keys.sign_in(store, key)
    await keys.revoke_key(Project(store, PROJECT), key.id)
    assert await keys.find_signed_in_key(store, token) is None


async def test_a_key_past_its_time_ends_its_sign_ins(store: Store) -> None:
    key, _ = await keys.create_key(Project(store, PROJECT), "me", ["read"])
    token = await keys.sign_in(store, key)
    async with store.write() as conn:
        await conn.execute(update(keys_table).values(expires_at=now() - 1))
    assert await keys.find_signed_in_key(store, token) is None


async def test_a_sign_in_ends_by_hand_and_no_other_with_it(store: Store) -> None:
    key, _ = await keys.create_key(Project(store, PROJECT), "me", ["read"])
    here, there = await keys.sign_in(store, key), await keys.sign_in(store, key)
    await keys.sign_out(store, here)
    assert await keys.find_signed_in_key(store, here) is None
    assert await keys.find_signed_in_key(store, there) == key


async def test_what_is_past_its_time_is_no_sign_in_and_goes_with_the_next(rows: Rows) -> None:
    key, _ = await keys.create_key(Project(rows.store, PROJECT), "me", ["read"])
    old = await keys.sign_in(rows.store, key)
    async with rows.store.write() as conn:
        await conn.execute(update(table).values(expires_at=now() - 1))
    assert await keys.find_signed_in_key(rows.store, old) is None
    await keys.sign_in(rows.store, key)
    assert len(await rows.all(table)) == 1
