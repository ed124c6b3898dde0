"""Lists over /hone/v1: narrowed by words, paged by ids, and what /schema says of both."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.registry import keys
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from recorder.views.lists.filters import GROUP_FILTER_PARAMS, TRAJECTORY_FILTER_PARAMS
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


async def test_runs_and_groups_are_listed_narrowed_and_paged(proxy: Proxy) -> None:
    for number in range(3):
        await proxy.chat(path=f"/g/orders/t/{number}", headers={"x-hone-tags": f"n={number}"})
    first = (await proxy.http.get("/hone/v1/trajectories", params={"limit": 2, "group": "orders"})).json()
    assert [run["external_id"] for run in first["trajectories"]] == ["2", "1"]
    assert first["looked_at"] is None
    rest = (await proxy.http.get("/hone/v1/trajectories", params={"before": first["next"]})).json()
    assert ([run["external_id"] for run in rest["trajectories"]], rest["next"]) == (["0"], None)
    tagged = (await proxy.http.get("/hone/v1/trajectories?tag=n%3D1&state=open&state=completed")).json()
    assert [run["external_id"] for run in tagged["trajectories"]] == ["1"]
    [group] = (await proxy.http.get("/hone/v1/groups?state=open")).json()["groups"]
    assert (group["external_id"], group["members"]) == ("orders", 3)


async def test_lists_hide_shadow_answers_and_gate_pairs_and_count_them(proxy: Proxy) -> None:
    await proxy.chat(path="/g/orders/t/1")
    rows = Rows(proxy.store)
    pair = await rows.ready_group(alias_id=proxy.alias.id, purpose="eval")
    for member in await rows.members(pair):
        await rows.set(trajectories, member, origin="shadow")
    for path, hidden in (("trajectories", 2), ("groups", 1)):
        usual = (await proxy.http.get(f"/hone/v1/{path}")).json()
        assert (len(usual[path]), usual["hidden"]) == (1, hidden)
        every = (await proxy.http.get(f"/hone/v1/{path}?origin=any")).json()
        assert (len(every[path]), every["hidden"]) == (1 + hidden, 0)
        shadow = (await proxy.http.get(f"/hone/v1/{path}?origin=shadow")).json()
        assert (len(shadow[path]), shadow["hidden"]) == (hidden, 0)
    of_pair = (await proxy.http.get(f"/hone/v1/trajectories?group={pair}")).json()
    assert (len(of_pair["trajectories"]), of_pair["hidden"]) == (2, 0)


@pytest.mark.parametrize(
    ("query", "param", "says"),
    [
        ("trajectories?stat=open", "stat", "'stat' is not a filter of this list"),
        ("trajectories?state=trained", "state", "not one of open"),
        ("trajectories?limit=0", "limit", "1 to 200"),
        ("trajectories?limit=201", "limit", "1 to 200"),
        ("groups?search=x", "search", "'search' is not a filter of this list"),
        ("groups?since=soon", "since", "is not a time"),
    ],
)
async def test_a_word_or_value_that_nobody_knows_is_refused_by_its_name(
    proxy: Proxy, query: str, param: str, says: str
) -> None:
    answer = await proxy.http.get(f"/hone/v1/{query}")
    assert (answer.status_code, answer.json()["param"]) == (400, param)
    assert says in answer.json()["detail"]


async def test_the_schema_has_every_word(proxy: Proxy) -> None:
    paths = (await proxy.http.get("/schema/openapi.json")).json()["paths"]
    for path, words in (("trajectories", TRAJECTORY_FILTER_PARAMS), ("groups", GROUP_FILTER_PARAMS)):
        told = {one["name"]: one for one in paths[f"/hone/v1/{path}"]["get"]["parameters"]}
        assert told.keys() == {*words, "before", "limit"} | ({"sort"} if path == "trajectories" else set())
        assert told["state"]["schema"]["items"]["enum"] == [*words["state"].takes, ""]
        assert told["alias"]["description"] == words["alias"].about
    assert "post" in paths["/hone/v1/trajectories"]


async def test_listing_needs_read(store: Store) -> None:
    _, infer = await keys.create_key(Project(store, PROJECT), "agent", ["infer"])
    _, read = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        for path in ("trajectories", "groups"):
            for key, status in ((read, 200), (infer, 403)):
                answer = await proxy.http.get(f"/hone/v1/{path}", headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == status
