"""How everything stands, over /hone/v1: as the pages and `hone status` show it, to who may read it."""

from __future__ import annotations

import pytest

from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.api.asking import get
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

pytestmark = pytest.mark.slow


async def test_status_says_what_hone_status_says(proxy: Proxy) -> None:
    status, found = await get(proxy, "/hone/v1/status")
    assert status == 200
    assert [one["live"] for one in found["aliases"]] == ["helpdesk@0"]
    assert [one["state"] for one in found["engines"]] == ["up"]
    assert (found["waiting"], found["alarms"]) == ("no group yet", [])


async def test_settings_are_those_that_the_process_was_given(proxy: Proxy) -> None:
    assert await get(proxy, "/hone/v1/settings") == (200, [])


@pytest.mark.parametrize("name", ["status", "judge", "tools", "settings", "keys"])
async def test_keys_are_for_admins_and_the_rest_for_who_may_read(store: Store, name: str) -> None:
    read = (await keys.create_key(Project(store, PROJECT), "r", ["read"]))[1]
    infer = (await keys.create_key(Project(store, PROJECT), "i", ["infer"]))[1]
    admin, secret = await keys.create_key(Project(store, PROJECT), "a", ["admin"])
    await keys.create_key(Project(store, PROJECT), "of a run", ["infer"], trajectory_id="one")

    async def status_for(key: str) -> int:
        return (await proxy.http.get(f"/hone/v1/{name}", headers={"x-api-key": key})).status_code

    async with FakeEngine() as engine, serving(store, engine) as proxy:
        assert [await status_for(key) for key in (infer, read, secret)] == [403, 403 if name == "keys" else 200, 200]
        if name == "keys":
            answer = await proxy.http.get("/hone/v1/keys", headers={"x-api-key": secret})
            assert [one["name"] for one in answer.json()] == ["a", "i", "r"]
            assert secret not in answer.text
            assert answer.json()[0]["id"] == admin.id
