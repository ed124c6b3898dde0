"""What replicas and proxies say of themselves is one row each, with the time it was said."""

from __future__ import annotations

from recorder.registry import replicas
from recorder.store.database import Project, Store
from recorder.store.schema import proxies
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows


async def test_a_replica_is_one_row_that_is_rewritten(store: Store) -> None:
    url = "http://127.0.0.1:8000"
    await replicas.report_replica(Project(store, PROJECT), url, state="starting")
    [before] = await replicas.list_replicas(Project(store, PROJECT))
    await replicas.report_replica(
        Project(store, PROJECT), url, state="up", loaded=["helpdesk@1-abc"], base_model="base", base_fingerprint="f"
    )
    [after] = await replicas.list_replicas(Project(store, PROJECT))
    assert (before.state, before.loaded) == ("starting", [])
    assert (after.state, after.loaded, after.base_model, after.base_fingerprint) == (
        "up", ["helpdesk@1-abc"], "base", "f",
    )  # fmt: skip
    assert after.id == before.id
    assert after.seen_at >= before.seen_at
    await replicas.forget_replica(Project(store, PROJECT), url)
    assert await replicas.list_replicas(Project(store, PROJECT)) == []


async def test_only_replicas_heard_of_lately_where_asked(rows: Rows) -> None:
    await replicas.report_replica(Project(rows.store, PROJECT), "http://a", state="up")
    assert len(await replicas.list_replicas(Project(rows.store, PROJECT), within_s=60)) == 1
    assert await replicas.list_replicas(Project(rows.store, PROJECT), within_s=-1) == []
    assert await replicas.list_replicas(Project(rows.store, "other")) == []


async def test_proxies_are_those_seen_lately(rows: Rows) -> None:
    for name in ("one", "two"):
        await replicas.report_proxy(
            Project(rows.store, PROJECT), name, "http://p", generations={"alias": 3}, in_flight={"v1": 2}
        )
    await rows.set(proxies, "two", seen_at=now() - 100)
    [seen] = await replicas.list_live_proxies(Project(rows.store, PROJECT), within_s=10)
    assert (seen.id, seen.generations, seen.in_flight) == ("one", {"alias": 3}, {"v1": 2})
    await replicas.report_proxy(Project(rows.store, PROJECT), "two", "http://p", generations={}, in_flight={})
    assert len(await replicas.list_live_proxies(Project(rows.store, PROJECT), within_s=10)) == 2
    await rows.set(proxies, "two", seen_at=now() - replicas.REMEMBERED_S - 1)
    await replicas.forget_gone_proxies(Project(rows.store, "another project"))
    assert len(await replicas.list_live_proxies(Project(rows.store, PROJECT), within_s=10**6)) == 2
    await replicas.forget_gone_proxies(Project(rows.store, PROJECT))
    assert [p.id for p in await replicas.list_live_proxies(Project(rows.store, PROJECT), within_s=10**6)] == ["one"]
    await replicas.report_proxy(Project(rows.store, PROJECT), "two", "http://p", generations={}, in_flight={})
    await replicas.forget_proxy(rows.store, "one")
    assert [p.id for p in await replicas.list_live_proxies(Project(rows.store, PROJECT), within_s=10)] == ["two"]
