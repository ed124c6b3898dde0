"""Keys are shown once, kept as a hash, and checked against scope, time and revocation."""

from __future__ import annotations

import pytest

from recorder.errors import Conflict, NotFound
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from recorder.store.schema import keys as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows


async def test_a_key_is_known_by_its_secret_alone(store: Store) -> None:
    key, secret = await keys.create_key(Project(store, PROJECT), "ci", ["infer", "feedback"])
    assert secret.startswith("hone_")
    assert len(secret) >= len("hone_") + 43  # 256 bits
    assert await keys.verify_secret(store, secret) == key
    assert await keys.verify_secret(store, secret[:-1]) is None
    assert await keys.verify_secret(store, "") is None
    assert (key.name, key.scopes, key.project_id) == ("ci", frozenset({Scope.INFER, Scope.FEEDBACK}), PROJECT)


async def test_the_store_never_holds_the_secret(rows: Rows) -> None:
    _, secret = await keys.create_key(Project(rows.store, PROJECT), "ci", ["read"])
    [row] = await rows.all(table)
    assert secret not in str(dict(row))
    assert row["hint"] == secret[:9]


async def test_two_keys_are_never_equal(store: Store) -> None:
    secrets = {(await keys.create_key(Project(store, PROJECT), "same", ["infer"]))[1] for _ in range(5)}
    assert len(secrets) == 5


async def test_a_secret_made_elsewhere_is_a_key_once(store: Store) -> None:
    secret = "hone_" + "5e" * 16
    made = await keys.adopt_key(Project(store, PROJECT), "agents", ["infer"], secret)
    assert await keys.adopt_key(Project(store, PROJECT), "agents", ["infer"], secret) == made
    assert await keys.verify_secret(store, secret) == made
    assert [key.id for key in await keys.list_keys(Project(store, PROJECT))] == [made.id]


async def test_a_secret_is_not_taken_for_other_scopes_nor_brought_back(store: Store) -> None:
    secret = "hone_" + "5e" * 16
    made = await keys.adopt_key(Project(store, PROJECT), "agents", ["infer"], secret)
    with pytest.raises(Conflict, match=f"{made.id}.*use a new secret"):
        await keys.adopt_key(Project(store, PROJECT), "agents", ["admin"], secret)
    await keys.revoke_key(Project(store, PROJECT), made.id)
    with pytest.raises(Conflict):
        await keys.adopt_key(Project(store, PROJECT), "agents", ["infer"], secret)


@pytest.mark.parametrize("secret", ["", "hone_short", "sk-" + "5e" * 20, "hone_" + "5e" * 16 + "\nmore"])
async def test_what_is_no_secret_is_refused(store: Store, secret: str) -> None:
    with pytest.raises(ValueError, match="at least 32 random characters"):
        await keys.adopt_key(Project(store, PROJECT), "agents", ["infer"], secret)
    assert await keys.list_keys(Project(store, PROJECT)) == []


async def test_a_rotated_key_has_what_the_old_one_had(store: Store) -> None:
    old, secret = await keys.create_key(Project(store, PROJECT), "ci", ["infer", "eval"], "orders/one", expires_at=4e9)
    made, later = await keys.rotate_key(Project(store, PROJECT), "ci")
    assert (made.replaces, made.family, old.family) == (old.id, old.id, old.id)
    assert (made.name, made.scopes, made.trajectory_id, made.expires_at) == (
        old.name, old.scopes, old.trajectory_id, old.expires_at,
    )  # fmt: skip
    assert later != secret
    assert await keys.verify_secret(store, secret) is None
    assert await keys.verify_secret(store, later) == made
    again, _ = await keys.rotate_key(Project(store, PROJECT), made.id)
    assert (again.replaces, again.family) == (made.id, old.id)


async def test_the_old_key_may_go_on_for_a_while_but_never_longer_than_its_time(rows: Rows) -> None:
    store = rows.store
    for_ever, secret = await keys.create_key(Project(store, PROJECT), "for ever", ["infer"])
    ending, _ = await keys.create_key(Project(store, PROJECT), "ending", ["infer"], expires_at=for_ever.created_at + 60)
    for key in (for_ever, ending):
        await keys.rotate_key(Project(store, PROJECT), key.id, grace_s=3600)
    assert await keys.verify_secret(store, secret) is not None
    until = {row["id"]: row["expires_at"] for row in await rows.all(table)}
    assert for_ever.created_at + 3600 <= until[for_ever.id] <= for_ever.created_at + 3660
    assert until[ending.id] == ending.expires_at


async def test_what_is_not_in_force_or_not_one_is_not_rotated(store: Store) -> None:
    for _ in range(2):
        await keys.create_key(Project(store, PROJECT), "same", ["infer"])
    with pytest.raises(Conflict, match="2 keys are called 'same'"):
        await keys.rotate_key(Project(store, PROJECT), "same")
    gone, _ = await keys.create_key(Project(store, PROJECT), "gone", ["infer"])
    await keys.revoke_key(Project(store, PROJECT), gone.id)
    with pytest.raises(NotFound, match="no valid key 'gone'"):
        await keys.rotate_key(Project(store, PROJECT), "gone")


def test_admin_may_do_everything_and_infer_only_that(store: Store) -> None:
    def key(*scopes: Scope) -> keys.KeyView:
        return keys.KeyView("k", PROJECT, "n", "hone_", frozenset(scopes), None, 0.0, None, None, "k", None, None, None)

    assert all(key(Scope.ADMIN).may(scope) for scope in Scope)
    assert [scope for scope in Scope if key(Scope.INFER).may(scope)] == [Scope.INFER]


@pytest.mark.parametrize("scopes", [[], ["root"], ["infer", "everything"]])
async def test_unknown_scopes_are_refused(store: Store, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="infer, feedback, feedback-all, read, eval, admin"):
        await keys.create_key(Project(store, PROJECT), "k", scopes)


async def test_a_key_past_its_time_opens_nothing_but_still_guards(store: Store) -> None:
    _, secret = await keys.create_key(Project(store, PROJECT), "old", ["infer"], expires_at=1.0)
    assert await keys.verify_secret(store, secret) is None
    assert await keys.has_keys(Project(store, PROJECT))


async def test_a_revoked_key_opens_nothing(store: Store) -> None:
    key, secret = await keys.create_key(Project(store, PROJECT), "leaked", ["infer"])
    revoked = await keys.revoke_key(Project(store, PROJECT), key.id)
    assert revoked.revoked_at is not None
    assert await keys.verify_secret(store, secret) is None
    assert await keys.list_keys(Project(store, PROJECT)) == [revoked]
    assert not await keys.has_keys(Project(store, PROJECT))
    with pytest.raises(NotFound):
        await keys.revoke_key(Project(store, PROJECT), key.id)


async def test_keys_are_revoked_by_name_where_it_is_clear(store: Store) -> None:
    for name in ("one", "two", "two"):
        await keys.create_key(Project(store, PROJECT), name, ["infer"])
    await keys.revoke_key(Project(store, PROJECT), "one")
    with pytest.raises(Conflict, match="2 keys are called 'two'"):
        await keys.revoke_key(Project(store, PROJECT), "two")
    with pytest.raises(NotFound):
        await keys.revoke_key(Project(store, "other"), "two")


async def test_a_key_for_one_run_does_not_close_the_proxy(store: Store) -> None:
    assert not await keys.has_keys(Project(store, PROJECT))
    await keys.create_key(Project(store, PROJECT), "run", ["infer"], trajectory_id="traj_1")
    assert not await keys.has_keys(Project(store, PROJECT))
    await keys.create_key(Project(store, PROJECT), "ci", ["infer"])
    assert await keys.has_keys(Project(store, PROJECT))
    assert not await keys.has_keys(Project(store, "other"))


async def test_expiry_is_by_the_databases_clock(store: Store) -> None:
    async with store.read() as conn:
        at = (await conn.execute(now().select())).scalar_one()
    _, secret = await keys.create_key(Project(store, PROJECT), "k", ["infer"], expires_at=at + 1000)
    assert await keys.verify_secret(store, secret) is not None
