"""Traffic over a range: the points that fit it, what was counted in each, and the values with the most calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import FilterInvalid
from recorder.registry.keys import create_key
from recorder.states import Origin
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.totals.call_facts import CallFacts
from recorder.totals.time_rows import KEPT_S, merge_rows, save_rows, sum_calls
from recorder.views.lists.filters import RANGES_S, TrafficFilter, parse_traffic_filter
from recorder.views.status.traffic import MOST_POINTS, MOST_SHOWN, Traffic, choose_range, load_traffic
from tests.recorder.rows import PROJECT
from tests.recorder.totals.facts import facts

NOW = 1_800_000_000.0


async def counted(store: Store, *called: CallFacts) -> None:
    async with store.write() as conn:
        now = await sql.current_time(conn)
        await save_rows(conn, PROJECT, merge_rows({}, sum_calls(called, now)))


async def loaded(store: Store, **said: str) -> Traffic:
    return await load_traffic(Project(store, PROJECT), parse_traffic_filter(said.items()))


async def now_of(store: Store) -> float:
    async with store.read() as conn:
        return await sql.current_time(conn)


@pytest.mark.parametrize(("name", "row_s"), [("1h", 60), ("24h", 600), ("7d", 3600), ("30d", 21600)])
def test_a_usual_range_is_read_in_rows_as_long_as_its_points(name: str, row_s: int) -> None:
    found = choose_range(NOW - RANGES_S[name], NOW, NOW)
    assert (found.row_s, found.step_s) == (row_s, row_s)


@given(st.floats(0, 500 * 86400.0), st.floats(60.0, 500 * 86400.0))
def test_any_range_has_few_points_of_kept_rows_and_covers_all_of_it(age: float, span: float) -> None:
    since = NOW - age
    found = choose_range(since, since + span, NOW)
    assert found.count <= MOST_POINTS + 1
    assert found.step_s % found.row_s == 0
    assert found.first <= since
    assert found.first + found.count * found.step_s >= since + span
    assert since >= NOW - KEPT_S[found.row_s] or found.row_s == max(KEPT_S)


async def test_an_empty_store_has_points_without_calls(store: Store) -> None:
    found = await loaded(store, range="1h")
    assert (found.total.calls, found.total.duration.p50_s, found.values, found.waiting) == (0, None, [], 0)
    assert 60 <= len(found.points) <= 61


async def test_a_range_has_the_calls_that_began_within_it(store: Store) -> None:
    now = await now_of(store)
    await counted(
        store,
        facts(started_at=now - 120, duration_s=1.0),
        facts(started_at=now - 120, error="timeout", duration_s=None, cost_usd=None),
        facts(started_at=now - 5 * 3600, error="aborted", duration_s=None),
        facts(started_at=now - 120, origin=Origin.SHADOW),
    )
    hour, day = await loaded(store, range="1h"), await loaded(store)
    assert (hour.total.calls, hour.total.errors, hour.errors) == (2, 1, {"timeout": 1})
    assert (day.total.calls, day.errors) == (3, {"aborted": 1, "timeout": 1})
    assert [point.figures.calls for point in hour.points if point.figures.calls] == [2]
    assert [point.errors for point in hour.points if point.errors] == [{"timeout": 1}]
    assert hour.total.duration.p50_s == pytest.approx(1.0, rel=0.2)
    assert hour.total.cost_usd == pytest.approx(0.5)
    assert (await loaded(store, origin="any")).total.calls == 4
    assert (await loaded(store, origin="shadow")).total.calls == 1
    past = await loaded(store, since=str(now - 6 * 3600), until=str(now - 4 * 3600))
    assert past.total.calls == 1


async def test_a_split_shows_the_values_with_the_most_calls(store: Store) -> None:
    now = await now_of(store)
    called = [facts(started_at=now - 60, client=f"c{n}") for n in range(MOST_SHOWN + 2) for _ in range(n + 1)]
    await counted(store, *called)
    found = await loaded(store, split="client")
    assert [(value.value, value.total.calls) for value in found.values] == [
        (f"c{n}", n + 1) for n in range(MOST_SHOWN + 1, 1, -1)
    ]
    assert found.more_values == 2
    assert all(sum(point.calls for point in value.points) == value.total.calls for value in found.values)


async def test_tags_are_split_by_name_and_keys_have_names(store: Store) -> None:
    now = await now_of(store)
    key, _ = await create_key(Project(store, PROJECT), "backend", ["infer"])
    await counted(
        store,
        facts(started_at=now - 60, tags=("team=blue", "teams=3"), key=key.family),
        facts(started_at=now - 60, tags=("team=red",)),
    )
    assert {value.value for value in (await loaded(store, split="tag")).values} == {"team=blue", "team=red", "teams=3"}
    assert {value.value for value in (await loaded(store, split="tag", tag="team")).values} == {"team=blue", "team=red"}
    assert {value.name for value in (await loaded(store, split="key")).values} == {"backend", ""}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"range": "2h"}, "range"),
        ({"split": "model"}, "split"),
        ({"since": "200", "until": "100"}, "until"),
        ({"alias": "helpdesk"}, "alias"),
    ],
)
def test_what_is_no_range_is_an_error_that_names_the_parameter(said: dict[str, str], word: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse_traffic_filter(said.items())
    assert caught.value.word == word


async def test_a_range_that_begins_after_now_is_empty(store: Store) -> None:
    with pytest.raises(FilterInvalid, match="the range is empty"):
        await load_traffic(Project(store, PROJECT), TrafficFilter(since=await now_of(store) + 100))
