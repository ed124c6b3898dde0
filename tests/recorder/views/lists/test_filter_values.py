"""What lists offer to choose from: the values that there are."""

from __future__ import annotations

from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.views.lists.filter_values import FilterValues, group_filter_values, trajectory_filter_values
from tests.recorder.rows import PROJECT, Rows


async def test_an_empty_store_offers_nothing(store: Store) -> None:
    nothing = FilterValues([], [], [], [], [])
    assert (
        await trajectory_filter_values(Project(store, PROJECT))
        == await group_filter_values(Project(store, PROJECT))
        == nothing
    )


async def test_what_is_there_is_offered_once(store: Store, rows: Rows) -> None:
    await rows.alias("shop")
    await rows.alias()
    run = await rows.trajectory(await rows.group(state="left_out", reason="too_few"))
    await rows.call(run, attribution_source="lineage")
    codes = ("zero_variance", "too_few", "trained", "too_few", "deleted")
    async with store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", run, code) for code in codes])
    runs = await trajectory_filter_values(Project(store, PROJECT))
    assert (runs.aliases, runs.versions) == (["helpdesk", "shop"], ["helpdesk@0", "shop@0"])
    assert runs.reasons == ["trained", "too_few", "zero_variance"]
    assert runs.sources == ["lineage", "path"]
    assert (await group_filter_values(Project(store, PROJECT))).reasons == ["too_few"]
    assert (await trajectory_filter_values(Project(store, "other"))).reasons == []
