"""Groups, listed: what each word narrows to, and pages by their ids."""

from __future__ import annotations

import pytest

from recorder.errors import FilterInvalid
from recorder.states import Purpose
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns, trajectories
from recorder.store.sql import now
from recorder.views.lists.filters import (
    GroupFilter,
    TrajectoryFilter,
    parse_group_filter,
    with_usual_groups,
    with_usual_trajectories,
)
from recorder.views.lists.groups import list_groups
from recorder.views.lists.trajectories import list_trajectories
from tests.recorder.rows import PROJECT, Rows


async def ids(store: Store, **said: str) -> list[str]:
    return [line.id for line in (await list_groups(Project(store, PROJECT), parse_group_filter(said.items()))).lines]


async def test_groups_are_narrowed_by_what_they_are(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    campaign = {"id": "camp_1", "project_id": PROJECT, "alias_id": alias.id, "name": "first", "settings": {}}
    await rows.insert(campaigns, {**campaign, "state": "running", "started_at": now()})
    one = await rows.group(alias_id=alias.id, version_id=alias.live_version_id, campaign_id="camp_1")
    two = await rows.group(state="left_out", reason="too_few")
    for said, wanted in (
        ({}, [two, one]),
        ({"alias": "helpdesk"}, [one]),
        ({"version": "helpdesk@0"}, [one]),
        ({"state": "left_out"}, [two]),
        ({"reason": "too_few"}, [two]),
        ({"reason": "too_old"}, []),
        ({"campaign": "first"}, [one]),
        ({"campaign": "camp_1"}, [one]),
        ({"campaign": "second"}, []),
        ({"state": "left_out", "alias": "helpdesk"}, []),
    ):
        assert await ids(store, **said) == wanted, said
    assert (await list_groups(Project(store, "other"))).lines == []


async def test_groups_are_narrowed_by_how_far_their_rewards_lie_apart(store: Store, rows: Rows) -> None:
    apart, alone = await rows.scored_group(2), await rows.scored_group(1)
    await rows.group()
    assert await ids(store, spread_from="0.5") == [apart]
    assert await ids(store, spread_to="0.5") == [alone]
    assert await ids(store, spread_from="0", spread_to="1") == [alone, apart]


async def test_groups_come_newest_first_whatever_their_ids_are_and_in_pages(store: Store, rows: Rows) -> None:
    times = {"group_f0": 1000.5, "group_a1": 2000.25, "group_c2": 2000.25, "group_00": 3000.125}
    for id_, at in times.items():
        await rows.group(id=id_, opened_at=at)
    newest = ["group_00", "group_c2", "group_a1", "group_f0"]
    for said in ({}, {"state": "open"}, {"since": "1000"}):
        found: list[str] = []
        before: str | None = None
        while len(found) < 4:
            page = await list_groups(Project(store, PROJECT), parse_group_filter(said.items()), before=before, limit=1)
            found += [one.id for one in page.lines]
            before = page.next
        assert (found, before) == (newest, None), said
    assert await ids(store, since="2000.25") == newest[:3]
    assert await ids(store, until="2000.25", state="open") == newest[3:]
    assert await ids(store, since="2000", until="2001") == newest[1:3]
    above = await list_groups(Project(store, PROJECT), parse_group_filter([("until", "2001")]), before="9000~")
    assert [one.id for one in above.lines] == newest[1:]


@pytest.mark.parametrize("before", ["group_00", "~", "nan~group_00", "1e999x~a", "--1~a"])
async def test_what_is_no_place_of_the_list_is_refused(store: Store, before: str) -> None:
    with pytest.raises(FilterInvalid, match="not a position in this list") as e:
        await list_groups(Project(store, PROJECT), before=before)
    assert e.value.word == "before"


async def test_a_usual_list_hides_groups_of_shadow_answers_and_gate_pairs_and_says_how_many(
    store: Store, rows: Rows
) -> None:
    alias = await rows.alias()
    empty = await rows.group()
    made = {}
    for name, run in (
        ("live", {"origin": "live"}),
        ("campaign", {"origin": "campaign"}),
        ("shadow", {"origin": "shadow"}),
        ("gate", {"origin": "shadow", "purpose": "eval"}),
    ):
        made[name] = await rows.ready_group(alias_id=alias.id)
        for member in await rows.members(made[name]):
            await rows.set(trajectories, member, **run)
    usual = await list_groups(Project(store, PROJECT), with_usual_groups(GroupFilter()))
    assert ([one.id for one in usual.lines], usual.hidden) == ([made["campaign"], made["live"], empty], 2)
    for said, hidden in (({"state": "ready"}, 2), ({"state": "open"}, 0), ({"alias": "helpdesk"}, 2)):
        wanted = with_usual_groups(parse_group_filter(said.items()))
        assert (await list_groups(Project(store, PROJECT), wanted, limit=1)).hidden == hidden, said
    later = with_usual_groups(parse_group_filter([("since", "4000000000")]))
    assert (await list_groups(Project(store, PROJECT), later)).hidden == 0
    assert await ids(store, origin="shadow") == [made["gate"], made["shadow"]]
    assert await ids(store, origin="campaign") == [made["campaign"]]
    assert await ids(store, origin="any") == [*[made[one] for one in ("gate", "shadow", "campaign", "live")], empty]


async def test_a_usual_list_hides_what_a_gate_attempts_at_scenarios(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    made = {}
    for id_, version in (("campaign_1", None), ("gate_1", alias.live_version_id)):
        row = {"id": id_, "project_id": PROJECT, "alias_id": alias.id, "name": id_, "settings": {}, "state": "running"}
        await rows.insert(campaigns, {**row, "started_at": now(), "version_id": version})
        for purpose in ("train", "eval"):
            made[id_, purpose] = await rows.ready_group(purpose=purpose, campaign_id=id_)
    alone = await rows.trajectory(answered=False, purpose="eval")
    usual = await list_groups(Project(store, PROJECT), with_usual_groups(GroupFilter()))
    assert {one.id for one in usual.lines} == {made["campaign_1", "train"], made["campaign_1", "eval"]}
    named = with_usual_groups(GroupFilter(campaign="gate_1"))
    assert len((await list_groups(Project(store, PROJECT), named)).lines) == 2
    assert len(await ids(store)) == len(await ids(store, origin="any")) == 4
    runs = await list_trajectories(
        Project(store, PROJECT), with_usual_trajectories(TrajectoryFilter(purpose=Purpose.EVAL))
    )
    assert {one.id for one in runs.lines} == {alone, *await rows.members(made["campaign_1", "eval"])}
    of_gate = with_usual_trajectories(TrajectoryFilter(group=made["gate_1", "eval"]))
    assert len((await list_trajectories(Project(store, PROJECT), of_gate)).lines) == 2
