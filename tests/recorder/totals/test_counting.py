"""Totals equal a direct aggregation of the calls: each call once, by whichever process, and none that was deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import LeaseLost
from recorder.ids import new_id
from recorder.maintenance.deletion import RETENTION, delete_trajectory
from recorder.messages.calls import Address
from recorder.search.documents import queue_all_calls
from recorder.settings import RecorderSettings
from recorder.states import CallState, ErrorKind, Origin
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import counted_calls, trajectories
from recorder.totals import follower
from recorder.totals.call_facts import CallFacts, Dimension, error_kind, load_call_facts
from recorder.totals.follower import count_calls, count_waiting
from recorder.totals.histograms import bucket_of
from recorder.totals.time_rows import (
    KEPT_S,
    MOST_VALUES,
    OTHERS,
    RowKey,
    Totals,
    delete_old_rows,
    merge_rows,
    sum_calls,
)
from recorder.totals.trajectory_rows import sum_by_trajectory
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, choice, tool_turn, user
from tests.recorder.totals.conftest import CallCounter
from tests.recorder.totals.facts import facts

NOW = 1_800_000_000.0
SEEN = {"prompt_tokens": 10, "completion_tokens": 4}
# The binary fractions have exact sums, so totals are compared for equality.
CALLS = st.builds(
    CallFacts,
    call_id=st.just("call"),
    trajectory_id=st.sampled_from(["traj_1", "traj_2", "traj_3"]),
    origin=st.sampled_from([Origin.LIVE, Origin.SHADOW]),
    started_at=st.floats(NOW - 3 * 86400, NOW),
    error=st.sampled_from([None, ErrorKind.ABORTED, ErrorKind.TIMEOUT]),
    tokens_in=st.integers(0, 1000),
    tokens_out=st.integers(0, 1000),
    cost_usd=st.none() | st.sampled_from([0.25, 0.5]),
    duration_s=st.none() | st.sampled_from([0.5, 2.0, 64.0]),
    first_token_s=st.none() | st.sampled_from([0.125, 0.5]),
    alias=st.sampled_from(["", "helpdesk", "shop"]),
    version=st.sampled_from(["", "helpdesk@1"]),
    client=st.sampled_from(["", "curl", "openai"]),
    key=st.sampled_from(["", "key_1"]),
    tags=st.sampled_from([(), ("team=blue",), ("n=1", "team=red")]),
)


def same(one: Totals, other: Totals) -> bool:
    return one.values() == other.values()


@given(st.lists(CALLS, max_size=20), st.integers(1, 5))
def test_totals_by_time_are_an_aggregation_of_the_calls_however_they_are_cut(
    called: Sequence[CallFacts], step: int
) -> None:
    rows: dict[RowKey, Totals] = {}
    for at in range(0, len(called), step):
        rows |= merge_rows(rows, sum_calls(called[at : at + step], NOW))
    for key, totals in rows.items():
        of_row = [
            call
            for call in called
            if call.origin == key.origin
            and key.at <= call.started_at < key.at + key.step_s
            and (key.dimension, key.value) in set(call.dimensions())
        ]
        assert totals.calls == len(of_row) > 0
        assert totals.errors == sum(call.error is not None for call in of_row)
        assert totals.tokens_in == sum(call.tokens_in for call in of_row)
        assert totals.tokens_out == sum(call.tokens_out for call in of_row)
        costs = [call.cost_usd for call in of_row if call.cost_usd is not None]
        assert totals.cost_usd == (sum(costs) if costs else None)
        seconds = [bucket_of(call.duration_s) for call in of_row if call.duration_s is not None]
        assert np.array_equal(totals.durations, np.bincount(seconds, minlength=totals.durations.size))
    for step_s, kept_s in KEPT_S.items():
        kept = [call for call in called if call.started_at // step_s * step_s >= NOW - kept_s]
        whole = [totals.calls for key, totals in rows.items() if key[:2] == (step_s, Dimension.ALL)]
        assert sum(whole) == len(kept)


@given(st.lists(CALLS, max_size=12), st.lists(CALLS, max_size=12))
def test_what_is_taken_out_leaves_what_was_there_before(some: Sequence[CallFacts], others: Sequence[CallFacts]) -> None:
    before = merge_rows({}, sum_calls(some, NOW))
    both = before | merge_rows(before, sum_calls(others, NOW))
    after = both | merge_rows(both, sum_calls(others, NOW, -1))
    left = {key: totals for key, totals in after.items() if totals.calls}
    assert left.keys() == before.keys()
    for key, totals in left.items():
        assert totals.values() | {"cost_usd": totals.cost_usd or 0.0} == before[key].values() | {
            "cost_usd": before[key].cost_usd or 0.0
        }


def test_a_dimension_has_so_many_values_at_a_time_and_the_rest_together() -> None:
    called = [facts(started_at=NOW, client=f"client-{n:03}") for n in range(MOST_VALUES + 7)]
    rows = merge_rows({}, sum_calls(called, NOW))
    clients = {key.value: totals.calls for key, totals in rows.items() if key[:2] == (60, Dimension.CLIENT)}
    assert len(clients) == MOST_VALUES + 1
    assert clients[OTHERS] == 7
    again = merge_rows(rows, sum_calls(called, NOW))
    assert {key.value: totals.calls for key, totals in again.items() if key[:2] == (60, Dimension.CLIENT)} == {
        value: 2 * calls for value, calls in clients.items()
    }


@pytest.mark.parametrize(
    ("state", "status", "kind"),
    [
        (CallState.COMPLETE, 200, None),
        (CallState.ABORTED, 200, ErrorKind.ABORTED),
        (CallState.ERRORED, None, ErrorKind.LOST),
        (CallState.ERRORED, 400, ErrorKind.REFUSED),
        (CallState.ERRORED, 408, ErrorKind.TIMEOUT),
        (CallState.ERRORED, 429, ErrorKind.RATE_LIMITED),
        (CallState.ERRORED, 503, ErrorKind.UNAVAILABLE),
        (CallState.ERRORED, 502, ErrorKind.FAILED),
        (CallState.ERRORED, 200, ErrorKind.FAILED),  # its stream had begun
    ],
)
def test_errors_are_told_apart_by_their_state_and_status(
    state: CallState, status: int | None, kind: ErrorKind | None
) -> None:
    assert error_kind(state, status) is kind


# --- in a store


async def test_what_is_recorded_is_counted_once_by_time_and_by_trajectory(
    store: Store, talk: Talk, counting: CallCounter
) -> None:
    at, here = time.time(), Address(trajectory="run", tags={"team": "blue"})
    cost = {"client": "openai", "cost_usd": 0.25}
    first = await talk.call([user("hi")], "yes", here, response_meta=cost, started_at=at - 4, first_token_at=at - 3,
                            finished_at=at - 2)  # fmt: skip
    run = first.attribution.trajectory.id
    await talk.call([user("find it")], tool_turn("a"), here, started_at=at - 1, first_token_at=None, finished_at=at)
    await talk.call([user("go")], [choice(None, finish_reason=None, token_ids=None, logprobs=None)], here,
                    state=CallState.ERRORED, http_status=503, usage=None, started_at=at, finished_at=at)  # fmt: skip
    await counting.index()
    assert await count_waiting(counting.project) == 3
    assert await counting.count() == 3
    assert await counting.values("") == {"": 3}
    assert await counting.values("client") == {"openai": 1, "": 2}
    assert await counting.values("tag") == {"team=blue": 3}
    assert await counting.values("error") == {"unavailable": 1}
    assert (await counting.of_trajectories())[run] == {
        "trajectory_id": run, "calls": 3, "errors": 1, "tokens_in": 6, "tokens_out": 6, "cost_usd": 0.25,
        "duration_s": pytest.approx(3.0), "first_token_s": pytest.approx(1.0), "first_tokens": 1,
    }  # fmt: skip
    assert await counting.facets() == {
        ("client", "openai", run), ("tool", "find", run), ("finish_reason", "stop", run),
        ("error", "unavailable", run),
    }  # fmt: skip
    async with store.write() as conn:
        await queue_all_calls(conn)  # as a copied store is indexed again
    await counting.index()
    assert await counting.count() == 0
    assert await counting.values("") == {"": 3}


async def test_the_totals_in_a_store_are_those_of_its_calls(
    rows: Rows, counting: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "CALLS", 7)
    now = await _now(counting.project.store)
    alias = await rows.alias()
    made: list[str] = []
    for n in range(5):
        origin = "shadow" if n == 4 else "live"
        run = await rows.trajectory(answered=False, origin=origin, tags={"n": str(n % 2)}, alias_id=alias.id)
        for m in range(4):
            at = now - 600 * n - 70 * m
            fields: dict[str, Any] = {"usage": SEEN, "response_meta": {"client": f"c{m}", "cost_usd": 0.5}}
            made.append(
                await rows.call(run, alias_id=alias.id, started_at=at, first_token_at=at + 0.5, finished_at=at + m,
                                state="aborted" if m == 3 else "complete", http_status=200, **fields)
            )  # fmt: skip
    await counting.queue(made[:9])
    assert await counting.count() == 9
    await counting.queue(made[9:])  # late ones, of times that were counted before
    assert await counting.count() == 11
    async with counting.project.store.read() as conn:
        called = await load_call_facts(conn, made)
    expected = merge_rows({}, sum_calls(called, now))
    found = await counting.rows()
    assert found.keys() == expected.keys()
    assert all(same(found[key], expected[key]) for key in expected)
    totals = await counting.of_trajectories()
    assert [totals[row["trajectory_id"]] for row in sum_by_trajectory(called)] == sum_by_trajectory(called)


async def _now(store: Store) -> float:
    async with store.read() as conn:
        return await sql.current_time(conn)


async def test_of_two_followers_the_one_that_lost_its_lease_writes_nothing(talk: Talk, counting: CallCounter) -> None:
    await talk.call([user("hi")], "yes")
    await counting.index()
    old = await counting.lease()
    new = await counting.lease()  # the same holder's next epoch, as after another holder's
    with pytest.raises(LeaseLost):
        await count_calls(counting.project, old)
    assert await counting.rows() == {}
    assert sum(await asyncio.gather(count_calls(counting.project, new), count_calls_or_none(counting, old))) == 1
    assert await counting.values("") == {"": 1}


async def count_calls_or_none(counting: CallCounter, lease: Any) -> int:
    try:
        return await count_calls(counting.project, lease)
    except LeaseLost:
        return 0


async def test_what_is_deleted_while_it_is_read_is_not_counted(
    talk: Talk, counting: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await talk.call([user("a secret")], "yes")
    run = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    await counting.index()
    read = follower._read

    async def and_then(*args: Any) -> Any:
        found = await read(*args)
        await delete_trajectory(counting.project, run)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(follower, "_read", and_then)
        assert await count_calls(counting.project, await counting.lease()) == 0
    assert await counting.count() == 0
    assert await counting.rows() == {}
    assert await counting.of_trajectories() == {}


@pytest.mark.parametrize("why", ["asked", RETENTION])
async def test_a_deletion_takes_calls_out_of_the_totals_and_retention_leaves_them(
    talk: Talk, counting: CallCounter, rows: Rows, why: str
) -> None:
    kept = await talk.call([user("stays")], tool_turn("a"), Address(tags={"team": "blue"}))
    gone = await talk.call([user("goes")], tool_turn("b"), Address(tags={"user": "ann"}))
    run = gone.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    await counting.index()
    await counting.count()
    await delete_trajectory(counting.project, run, why)
    left = why == RETENTION
    assert await counting.values("") == {"": 1 + left}
    assert await counting.values("tag") == {"team=blue": 1} | ({"user=ann": 1} if left else {})
    assert set(await counting.of_trajectories()) == {kept.attribution.trajectory.id}
    assert {of for _, _, of in await counting.facets()} == {kept.attribution.trajectory.id}
    assert [row["call_id"] for row in await rows.all(counted_calls)] == [kept.call_id]


async def test_a_shared_call_is_counted_with_the_trajectory_that_keeps_it(
    talk: Talk, counting: CallCounter, rows: Rows
) -> None:
    here = Address(group="task", group_size=2)
    made = await talk.call([user("go")], [choice({"role": "assistant", "content": text}, index) for index, text in
                                          enumerate(("one", "two"))], here)  # fmt: skip
    run = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    await counting.index()
    await counting.count()
    others = [row["id"] for row in await rows.all(trajectories) if row["id"] != run]
    assert set(await counting.of_trajectories()) == {run}
    assert len(others) == 1  # the second choice became a trajectory of its own
    await delete_trajectory(counting.project, run)
    assert {id_: row["calls"] for id_, row in (await counting.of_trajectories()).items()} == {others[0]: 1}
    assert await counting.values("") == {"": 1}


async def test_a_call_that_is_gone_waits_no_longer(counting: CallCounter) -> None:
    await counting.queue(["call_gone"])
    assert await counting.count() == 1
    assert await count_waiting(counting.project) == 0


async def test_usage_and_costs_that_are_none_count_as_absent(rows: Rows, counting: CallCounter) -> None:
    run = await rows.trajectory(answered=False)
    odd = {"prompt_tokens": "many", "completion_tokens": -3}
    made = [
        await rows.call(run, usage=odd, response_meta={"cost_usd": "a lot", "client": None}, finished_at=None),
        await rows.call(run, usage=[], response_meta=None),
    ]
    await counting.queue(made)
    assert await counting.count() == 2
    row = (await counting.of_trajectories())[run]
    assert (row["calls"], row["tokens_in"], row["tokens_out"], row["cost_usd"]) == (2, 0, 0, None)


async def test_old_rows_are_deleted_and_tags_with_the_calls(rows: Rows, counting: CallCounter) -> None:
    now = await _now(counting.project.store)
    run = await rows.trajectory(answered=False, tags={"user": "ann"})
    made = [await rows.call(run, started_at=now - age) for age in (60.0, 40 * 86400.0)]
    await counting.queue(made)
    await counting.count()
    assert (await counting.values("", 21600), await counting.values("", 600)) == ({"": 2}, {"": 1})
    store = counting.project.store
    async with store.write() as conn:
        await delete_old_rows(conn, PROJECT, now, retention_s=30 * 86400.0)
    assert await counting.values("", 21600) == {"": 2}
    assert await counting.values("tag", 21600) == {"user=ann": 1}
    async with store.write() as conn:
        await delete_old_rows(conn, PROJECT, now + 3 * 86400, retention_s=None)
    assert await counting.values("") == {}


async def test_it_counts_while_it_runs_and_one_process_does(
    talk: Talk, counting: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 0.02)
    settings = RecorderSettings()
    first, second = (follower.Follower(counting.project, settings, name) for name in ("first", "second"))
    async with first.running(), second.running():
        for n in range(3):
            await talk.call([user(f"order {n}")], "yes")
            await counting.index()
            while (await counting.values("")).get("") != n + 1:
                await asyncio.sleep(0.01)
    assert new_id("call") > (await Rows(counting.project.store).all(counted_calls))[-1]["call_id"]
