"""Runs, listed: what each word narrows to, what a line tells, and pages that together are the whole list."""

from __future__ import annotations

import pytest

from recorder.ids import new_id
from recorder.messages.calls import Address
from recorder.search.indexer import index_calls
from recorder.states import Origin
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import calls, tool_calls, trajectories
from recorder.views.lists.filters import TrajectoryFilter, parse_trajectory_filter, with_usual_trajectories
from recorder.views.lists.paging import IndexedScan, find_page
from recorder.views.lists.scans import RUNS
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, user


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
