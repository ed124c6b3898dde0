"""Runs, listed: what each word narrows to, what a line tells, and pages that together are the whole list."""

from __future__ import annotations

import pytest

from recorder.errors import FilterInvalid
from recorder.ids import new_id
from recorder.messages.calls import Address
from recorder.registry.keys import create_key
from recorder.search.indexer import index_calls
from recorder.states import CallState, Origin
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import calls, tool_calls, trajectories, trajectory_totals
from recorder.views.lists.filters import TrajectoryFilter, parse_trajectory_filter, with_usual_trajectories
from recorder.views.lists.paging import IndexedScan, Page, find_page
from recorder.views.lists.scans import RUNS
from recorder.views.lists.sort_order import Sort
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, choice, tool_turn, user
from tests.recorder.totals.facts import count_all


async def ids(store: Store, **said: str) -> list[str]:
    """What the list of all runs that are wanted has."""
    return [
        line.id
        for line in (await list_trajectories(Project(store, PROJECT), parse_trajectory_filter(said.items()))).lines
    ]


async def line(store: Store, id_: str) -> TrajectoryLine:
    return next(one for one in (await list_trajectories(Project(store, PROJECT))).lines if one.id == id_)


async def failed_call(rows: Rows, run: str, outcome: str = "failed") -> None:
    at = {"started_at": 1.0, "finished_at": 2.0}
    row = {"id": new_id("tool"), "project_id": PROJECT, "trajectory_id": run, "outcome": outcome, "name": "find"}
    await rows.insert(tool_calls, {**row, **at, "tool": "find", "join_source": "path", "join_confidence": "stated"})


async def told(store: Store, run: str, *codes: str) -> None:
    async with store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", run, code) for code in codes])


async def test_pages_together_are_the_whole_list_newest_first(store: Store, rows: Rows) -> None:
    made = [await rows.trajectory(answered=False, state="completed" if n % 2 else "open") for n in range(7)]
    for said, whole in (({}, made[::-1]), ({"state": "open"}, made[::2][::-1]), ({"purpose": "train"}, made[::-1])):
        found: list[str] = []
        before: str | None = None
        while True:
            page = await list_trajectories(
                Project(store, PROJECT), parse_trajectory_filter(said.items()), before=before, limit=2
            )
            found += [one.id for one in page.lines]
            before = page.next
            if before is None:
                break
            assert len(page.lines) == 2
        assert found == whole


async def test_a_page_gives_up_after_so_many_and_the_next_goes_on_behind_them(store: Store, rows: Rows) -> None:
    made = [await rows.trajectory(answered=False, purpose="val" if n in (0, 6) else "train") for n in range(9)]
    walk = IndexedScan(RUNS, [trajectories.c.project_id == PROJECT], most=4)
    checks = [trajectories.c.purpose == "val"]
    first = await find_page(store, RUNS, walk, checks, before=None, limit=5)
    assert (first.lines, first.next, first.looked_at) == ([made[6]], made[5], 4)
    second = await find_page(store, RUNS, walk, checks, before=first.next, limit=5)
    assert (second.lines, second.next, second.looked_at) == ([], made[1], 4)
    third = await find_page(store, RUNS, walk, checks, before=second.next, limit=5)
    assert (third.lines, third.next, third.looked_at) == ([made[0]], None, None)


async def test_runs_are_narrowed_by_what_they_are(store: Store, rows: Rows) -> None:
    alias, other = await rows.alias(), await rows.alias("shop")
    group = await rows.group(external_id="orders")
    one = await rows.trajectory(
        group, alias_id=alias.id, version_id=alias.live_version_id, session="s-1", tags={"team": "blue", "n": "3"}
    )
    two = await rows.trajectory(
        alias_id=other.id, state="errored", purpose="val", origin="shadow", tags={"team": "red"}
    )
    for said, wanted in (
        ({"alias": "helpdesk"}, [one]),
        ({"alias": "nobody"}, []),
        ({"version": "helpdesk@0"}, [one]),
        ({"version": "helpdesk@7"}, []),
        ({"version": "helpdesk"}, []),
        ({"state": "errored"}, [two]),
        ({"purpose": "val"}, [two]),
        ({"origin": "live"}, [one]),
        ({"session": "s-1"}, [one]),
        ({"tag": "team"}, [two, one]),
        ({"tag": "team=blue"}, [one]),
        ({"tag": "n=3"}, [one]),
        ({"tag": "tea"}, []),
        ({"group": "orders"}, [one]),
        ({"group": group}, [one]),
        ({"group": "other"}, []),
        ({"alias": "shop", "state": "errored", "tag": "team"}, [two]),
        ({"alias": "shop", "state": "open"}, []),
    ):
        assert await ids(store, **said) == wanted, said
    both = parse_trajectory_filter([("state", "open"), ("state", "errored")])
    assert [run.id for run in (await list_trajectories(Project(store, PROJECT), both)).lines] == [two, one]
    either = parse_trajectory_filter([("origin", "live"), ("origin", "shadow")])
    assert [run.id for run in (await list_trajectories(Project(store, PROJECT), either)).lines] == [two, one]


async def test_runs_are_narrowed_by_how_their_calls_were_attributed(store: Store, rows: Rows) -> None:
    one, two = await rows.trajectory(), await rows.trajectory()
    call = await rows.call(two, attribution_source="lineage")
    assert (await rows.get(calls, call))["attribution_source"] == "lineage"
    assert await ids(store, source="lineage") == [two]
    assert await ids(store, source="path") == [two, one]


async def test_runs_are_narrowed_by_when_they_began(store: Store, rows: Rows) -> None:
    one = await rows.trajectory(id=new_id("traj"))
    at = float((await rows.get(trajectories, one))["started_at"])
    assert await ids(store, since=f"{at - 5:.3f}") == await ids(store, since="1h") == [one]
    assert await ids(store, since=f"{at + 5:.3f}") == await ids(store, until="1h") == []
    assert await ids(store, since=f"{at - 5:.3f}", until=f"{at + 5:.3f}", state="open") == [one]


async def test_runs_are_narrowed_by_their_reward_in_the_current_score(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(3)
    low, middle, high = await rows.members(group)
    await rows.trajectory()
    assert await ids(store, reward_from="0.5") == [high, middle]
    assert await ids(store, reward_to="0.4") == [low]
    assert await ids(store, reward_from="0.1", reward_to="0.9") == [middle]
    assert (await line(store, high)).reward == 1.0


async def test_failed_tool_calls_are_counted_and_narrowed_by(store: Store, rows: Rows) -> None:
    good, bad = await rows.trajectory(), await rows.trajectory()
    for outcome in ("failed", "errored", "complete"):
        await failed_call(rows, bad, outcome)
    await failed_call(rows, good, "complete")
    assert [(await line(store, run)).tool_errors for run in (good, bad)] == [0, 2]
    assert await ids(store, tool_error="yes") == [bad]
    assert await ids(store, tool_error="no") == [good]


async def test_a_line_says_why_its_run_is_not_trained_on(store: Store, rows: Rows) -> None:
    judged = await rows.group(state="unscored", reason="judge_timeout")
    alone, failed, back, again, late = [await rows.trajectory() for _ in range(5)]
    waiting = await rows.trajectory(judged)
    await told(store, alone, "too_few")
    await told(store, back, "trained", "untrained")
    await told(store, again, "too_few", "trained")
    await told(store, late, "feedback_late")
    lines = {one.id: (one.excluded, one.trained) for one in (await list_trajectories(Project(store, PROJECT))).lines}
    assert lines == {
        alone: ("too_few", False), failed: (None, False), back: ("untrained", False), again: (None, True),
        late: (None, False), waiting: ("judge_timeout", False),
    }  # fmt: skip
    assert await ids(store, reason="too_few") == [again, alone]
    assert await ids(store, reason="trained") == [again]
    assert await ids(store, reason="untrained") == [back]
    assert await ids(store, reason="judge_timeout") == [waiting]
    assert await ids(store, reason="too_few", state="errored") == await ids(store, reason="nothing") == []


@pytest.mark.parametrize("many", [1, 3])
async def test_a_common_reason_and_a_rare_one_find_the_same(
    store: Store, rows: Rows, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.views.lists.scans._FEW", 2)
    made = [await rows.trajectory(answered=False) for _ in range(many + 1)]
    for run in made[:many]:
        await told(store, run, "too_few")
        await failed_call(rows, run)
    assert await ids(store, reason="too_few") == await ids(store, tool_error="yes") == made[:many][::-1]
    narrowed = TrajectoryFilter(reason="too_few", tool_error=True)
    page = await list_trajectories(Project(store, PROJECT), narrowed, before=made[many - 1], limit=10)
    assert [one.id for one in page.lines] == made[: many - 1][::-1]


async def test_another_projects_runs_are_in_no_list(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    run = await rows.trajectory(await rows.group(external_id="orders"), alias_id=alias.id, session="s")
    await told(store, run, "too_few")
    await failed_call(rows, run)
    said = [{}, {"group": "orders"}, {"reason": "too_few"}, {"tool_error": "yes"}, {"session": "s"}, {"state": "open"}]
    for one in said:
        assert (await list_trajectories(Project(store, "other"), parse_trajectory_filter(one.items()))).lines == [], one
        assert await ids(store, **one) == [run]


async def test_a_usual_list_hides_shadow_answers_and_gate_pairs_and_says_how_many(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    shown = [
        await rows.trajectory(answered=False, origin=origin, alias_id=alias.id, tags={"team": "blue"})
        for origin in ("live", "campaign", "replay", "import")
    ]
    for purpose in ("train", "eval", "eval"):
        await rows.trajectory(answered=False, origin="shadow", purpose=purpose, alias_id=alias.id)
    await rows.trajectory(answered=False, origin="shadow")
    for said, hidden in (
        ({}, 4),
        ({"alias": "helpdesk"}, 3),
        ({"purpose": "eval"}, 2),
        ({"tag": "team"}, 0),
        ({"alias": "another"}, 0),
        ({"since": "4000000000"}, 0),
    ):
        wanted = with_usual_trajectories(parse_trajectory_filter(said.items()))
        page = await list_trajectories(Project(store, PROJECT), wanted, limit=2)
        assert page.hidden == hidden, said
        assert all(one.origin is not Origin.SHADOW for one in page.lines)
    assert [one.id for one in page.lines] == []
    usual = await list_trajectories(Project(store, PROJECT), with_usual_trajectories(TrajectoryFilter()))
    assert [one.id for one in usual.lines] == shown[::-1]
    every = await list_trajectories(Project(store, PROJECT), parse_trajectory_filter([("origin", "any")]))
    assert (len(every.lines), every.hidden) == (8, 0)
    only = await list_trajectories(Project(store, PROJECT), parse_trajectory_filter([("origin", "shadow")]))
    assert (len(only.lines), only.hidden) == (4, 0)


async def test_what_is_hidden_is_counted_up_to_a_bound(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.views.lists.scans.MOST_HIDDEN", 3)
    for _ in range(5):
        await rows.trajectory(answered=False, origin="shadow")
    page = await list_trajectories(Project(store, PROJECT), with_usual_trajectories(TrajectoryFilter()))
    assert (page.lines, page.hidden) == ([], 3)


async def test_a_search_says_how_many_matches_it_hides(store: Store, talk: Talk) -> None:
    for origin in (Origin.LIVE, Origin.SHADOW, Origin.SHADOW):
        await talk.call([user(f"Where is my parcel, {origin}?")], "At the depot.", Address(origin=origin))
    await talk.call([user("Hello?")], "Good day.", Address(origin=Origin.SHADOW))
    while await index_calls(Project(store, PROJECT)):
        pass
    page = await list_trajectories(
        Project(store, PROJECT), with_usual_trajectories(parse_trajectory_filter([("search", "parcel")]))
    )
    assert ([one.origin for one in page.lines], page.hidden) == ([Origin.LIVE], 2)


async def test_runs_are_narrowed_by_what_is_counted_of_their_calls(store: Store, rows: Rows, talk: Talk) -> None:
    seen = {"response_meta": {"client": "openai"}, "usage": {"prompt_tokens": 90, "completion_tokens": 10}}
    long = await talk.call([user("a")], tool_turn("x"), Address(trajectory="long"), **seen)
    failed = await talk.call([user("b")], [choice(None, finish_reason=None)], Address(trajectory="failed"),
                             state=CallState.ERRORED, http_status=504)  # fmt: skip
    plain = await talk.call([user("c")], "yes", Address(trajectory="plain"))
    one, two, three = (made.attribution.trajectory.id for made in (long, failed, plain))
    uncounted = await rows.trajectory(id=new_id("traj"))
    await count_all(Project(store, PROJECT))
    for said, wanted in (
        ({"client": "openai"}, [one]),
        ({"client": "curl"}, []),
        ({"tool": "find"}, [one]),
        ({"finish_reason": "stop"}, [three, one]),
        ({"error": "timeout"}, [two]),
        ({"error": "failed"}, []),
        ({"error": "any"}, [two]),
        ({"error": "any", "client": "openai"}, []),
        ({"tokens_from": "100"}, [one]),
        ({"tokens_from": "7", "tokens_to": "99"}, []),
        ({"tokens_to": "99"}, [three, two]),
    ):
        assert await ids(store, **said) == wanted, said
    assert [(await line(store, run)).tokens_in for run in (one, uncounted)] == [90, None]
    first = await line(store, one)
    assert (first.tokens_out, first.cost_usd, first.judge_usd, first.first_token_s) == (10, None, None, 0.0)


async def test_with_many_matches_a_facet_is_checked_run_by_run(
    store: Store, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await talk.call([user(f"order {n}")], "yes", response_meta={"client": f"c{n % 2}"}) for n in range(6)]
    await count_all(Project(store, PROJECT))
    wanted = [one.attribution.trajectory.id for one in made[::2]]
    assert await ids(store, client="c0") == sorted(wanted, reverse=True)
    monkeypatch.setattr("recorder.views.lists.scans._FEW", 2)
    assert await ids(store, client="c0") == sorted(wanted, reverse=True)


async def test_runs_are_narrowed_by_their_key_training_and_times(store: Store, rows: Rows) -> None:
    key, _ = await create_key(Project(store, PROJECT), "backend", ["infer"])
    of_key = await rows.trajectory(made_by=key.family, started_at=1000.0, last_call_at=1060.0)
    other = await rows.trajectory(started_at=1000.0, last_call_at=1005.0)
    await told(store, other, "trained")
    for said, wanted in (
        ({"key": "backend"}, [of_key]),
        ({"key": key.id}, [of_key]),
        ({"key": "nobody"}, []),
        ({"trained": "yes"}, [other]),
        ({"trained": "no"}, [of_key]),
        ({"duration_from": "10"}, [of_key]),
        ({"duration_to": "5"}, [other]),
        ({"active_since": "1010"}, [of_key]),
        ({"active_since": "1005"}, [other, of_key]),
    ):
        assert await ids(store, **said) == wanted, said


async def sorted_ids(store: Store, sort: Sort, *, before: str | None = None, limit: int = 50) -> Page[str]:
    found = await list_trajectories(Project(store, PROJECT), sort=sort, before=before, limit=limit)
    return Page([one.id for one in found.lines], found.next, found.looked_at, found.hidden, found.sorted_over)


async def test_a_list_is_sorted_by_a_figure_with_what_has_none_last(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.ready_group(2, alias_id=alias.id, version_id=alias.live_version_id)
    await rows.score(group, cost_usd=0.5)
    low, high = await rows.members(group)
    dear = await rows.trajectory(answered=False, started_at=100.0, last_call_at=900.0)
    totals = {"calls": 1, "errors": 0, "duration_s": 1.0}
    for run, tokens, cost, first in ((low, 5, 0.25, 0.5), (dear, 500, 2.0, 8.0)):
        row = {"trajectory_id": run, "tokens_in": tokens, "tokens_out": 0, "cost_usd": cost}
        await rows.insert(trajectory_totals, {**row, **totals, "first_token_s": first, "first_tokens": 2})
    for sort, wanted in (
        (Sort.TOKENS, [dear, low, high]),
        (Sort.COST, [dear, low, high]),  # 2.0; 0.25 and its half of 0.5; its half
        (Sort.FIRST_TOKEN, [dear, low, high]),
        (Sort.REWARD, [high, low, dear]),
        (Sort.VERSION, [high, low, dear]),
        (Sort.TIME, [dear, high, low]),
    ):
        assert (await sorted_ids(store, sort)).lines == wanted, sort
    assert (await sorted_ids(store, Sort.DURATION)).lines[0] == dear
    assert [(await line(store, run)).judge_usd for run in (low, high, dear)] == [0.25, 0.25, None]
    assert (await line(store, dear)).first_token_s == 4.0


async def test_pages_of_a_sorted_list_together_are_the_newest_matches(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [
        await rows.trajectory(answered=False, started_at=0.0, last_call_at=float(n * 7 % 5), id=f"traj_{n}")
        for n in range(5)
    ]
    longest = sorted(made, key=lambda id_: (int(id_[-1]) * 7 % 5, id_), reverse=True)
    first = await sorted_ids(store, Sort.DURATION, limit=3)
    second = await sorted_ids(store, Sort.DURATION, limit=3, before=first.next)
    assert [*first.lines, *second.lines] == longest
    assert (first.sorted_over, second.next) == (None, None)
    monkeypatch.setattr("recorder.views.lists.sort_order.MOST_SORTED", 3)
    newest = await sorted_ids(store, Sort.DURATION)
    assert (set(newest.lines), newest.sorted_over) == (set(made[2:]), 3)
    with pytest.raises(FilterInvalid, match="not a position"):
        await sorted_ids(store, Sort.DURATION, before="traj_1")
