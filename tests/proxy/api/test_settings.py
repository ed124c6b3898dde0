"""Settings changed at run time and campaigns paused over /hone/v1: who may, what is answered, and what holds then."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.queue import campaigns, leases
from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.api.asking import get
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import ALIAS, PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

PATH = "/hone/v1/settings"
CHANGES = "/hone/v1/setting-changes"
STEPS = f"{PATH}/learn.steps_per_hour"
JSON = {"content-type": "application/json"}  # without keys, what a form of another site cannot send
ORIGIN = {"learn.steps_per_hour": "hone.toml"}


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as made:
        made.default = Script([words("It arrives on Monday")])
        yield made


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=WITHOUT_PAGES, origin=ORIGIN) as running:
        yield running


async def shown(proxy: Proxy, key: str) -> dict[str, Any]:
    [one] = [one for one in (await get(proxy, PATH))[1] if one["key"] == key]
    found: dict[str, Any] = one
    return found


async def test_a_change_is_shown_with_its_origin_until_it_is_undone(proxy: Proxy) -> None:
    before = await shown(proxy, "learn.steps_per_hour")
    assert (before["value"], before["origin"], before["change"], before["changeable"]) == (
        None, "hone.toml", None, True,
    )  # fmt: skip
    answer = await proxy.http.put(STEPS, json={"value": 3})
    assert answer.status_code == 200
    one = answer.json()
    assert one == await shown(proxy, "learn.steps_per_hour")
    assert (one["value"], one["origin"], one["file_value"]) == (3, "page", None)
    assert one["toml"] == "[learn]\nsteps_per_hour = 3"
    assert (one["change"]["before"], one["change"]["after"]) == (None, 3)
    assert one["change"]["by"] == "somebody on this machine"
    undone = await proxy.http.delete(STEPS, headers=JSON)
    assert (undone.status_code, undone.json()) == (200, before)
    status, told = await get(proxy, CHANGES)
    assert status == 200
    assert sorted((c["number"], c["after"], c["undone"]) for c in told) == [(1, 3, False), (2, None, True)]


async def test_a_changed_override_holds_for_the_next_call(proxy: Proxy, engine: FakeEngine) -> None:
    key = f"{PATH}/aliases.{ALIAS}.sampling.override.temperature"
    assert (await proxy.http.put(key, json={"value": 0.7})).status_code == 200
    answer = await proxy.chat("hello", temperature=0)
    assert answer.headers["x-hone-sampling"] == "temperature=0.7"
    assert engine.requests[-1]["temperature"] == 0.7
    await proxy.http.delete(key, headers=JSON)
    assert "x-hone-sampling" not in (await proxy.chat("hello again", temperature=0)).headers


async def test_a_change_reaches_the_other_workers(store: Store, engine: FakeEngine) -> None:
    key = f"{PATH}/aliases.{ALIAS}.sampling.override.temperature"
    async with (
        serving(store, engine, settings=WITHOUT_PAGES, origin={}) as first,
        serving(store, engine, settings=WITHOUT_PAGES, origin={}) as second,
    ):
        await first.http.put(key, json={"value": 0.7})

        async def follows() -> bool:
            return "x-hone-sampling" in (await second.chat("hello", temperature=0)).headers

        await until(follows)


@pytest.mark.parametrize(
    ("key", "body", "status", "why"),
    [
        ("learn.steps_per_hour", {"value": 0}, 400, "learn.steps_per_hour: Input should be greater than or equal to 1"),
        ("learn.hours", {"value": "late"}, 400, "learn.hours: Value error"),
        (f"aliases.{ALIAS}.sampling.override.top_p", {"value": 0.5}, 400, "top_p 0.5 changes the sampled distribution"),
        ("aliases.nobody.promote", {"value": "auto"}, 404, "no alias 'nobody'"),
        ("proxy.port", {"value": 9}, 404, "set it in hone.toml"),
        ("learn.steps_per_hour", {"value": [1]}, 400, "value"),
        ("learn.steps_per_hour", {"amount": 1}, 400, "amount"),
        ("learn.steps_per_hour", {}, 400, "value"),
    ],
)
async def test_what_cannot_be_is_refused_with_its_reason(
    proxy: Proxy, key: str, body: dict[str, Any], status: int, why: str
) -> None:
    answer = await proxy.http.put(f"{PATH}/{key}", json=body)
    assert (answer.status_code, why in answer.text) == (status, True), answer.text
    assert (await get(proxy, CHANGES))[1] == []


async def test_what_was_not_changed_has_nothing_to_undo(proxy: Proxy) -> None:
    answer = await proxy.http.delete(STEPS, headers=JSON)
    assert (answer.status_code, "no change to undo" in answer.text) == (409, True)


async def test_changing_is_for_admins_and_reading_for_readers(store: Store, engine: FakeEngine) -> None:
    project = Project(store, PROJECT)
    secrets = {name: (await keys.create_key(project, name, [name]))[1] for name in ("infer", "eval", "read", "admin")}
    async with serving(store, engine, settings=WITHOUT_PAGES, origin={}) as proxy:
        for method, path, allowed in (
            ("PUT", STEPS, {"admin"}),
            ("DELETE", STEPS, {"admin"}),
            ("GET", CHANGES, {"read", "admin"}),
        ):
            for name, secret in secrets.items():
                body = {"value": 2} if method == "PUT" else None
                answer = await proxy.http.request(method, path, headers={"x-api-key": secret}, json=body)
                assert answer.status_code == (200 if name in allowed else 403), (method, name)


async def test_a_running_campaign_is_asked_to_pause_by_admins_alone(store: Store, engine: FakeEngine) -> None:
    project = Project(store, PROJECT)
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        campaign = await campaigns.create_campaign(project, proxy.alias.id, "spring", {})
        path = "/hone/v1/campaigns/spring"
        left = await proxy.http.post(f"{path}/pause", json={})
        assert (left.status_code, "`hone train --resume spring` continues it" in left.text) == (409, True)
        assert await leases.acquire_lease(project, campaigns.lease_name(campaign.id), "trainer", 60)
        asked = await proxy.http.post(f"{path}/pause", json={})
        assert (asked.status_code, asked.json()["id"]) == (202, campaign.id)
        [shown] = (await get(proxy, "/hone/v1/training"))[1]["campaigns"]
        assert (shown["asked"]["wish"], shown["asked"]["by"]) == ("pause", "somebody on this machine")
        assert (await proxy.http.post(f"{path}x/end", json={})).status_code == 404
        _, reader = await keys.create_key(project, "reader", ["read"])
        _, admin = await keys.create_key(project, "ops", ["admin"])

        async def ends(secret: str) -> int:
            return (await proxy.http.post(f"{path}/end", json={}, headers={"x-api-key": secret})).status_code

        async def closed() -> bool:  # the absence of keys is believed for a second
            return await ends("wrong") == 401

        await until(closed)
        assert [await ends(reader), await ends(admin)] == [403, 202]
