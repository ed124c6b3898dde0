"""Groups, listed: what each word narrows to, and pages by their ids."""

from __future__ import annotations

from recorder.ids import new_id
from recorder.listing.groups import list_groups
from recorder.listing.words import group_filter
from recorder.store.database import Store, now
from recorder.store.schema import campaigns, groups
from tests.recorder.rows import PROJECT, Rows


async def ids(store: Store, **said: str) -> list[str]:
    return [line.id for line in (await list_groups(store, PROJECT, group_filter(said.items()))).lines]


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
    assert (await list_groups(store, "other")).lines == []


async def test_groups_are_narrowed_by_how_far_their_rewards_lie_apart(store: Store, rows: Rows) -> None:
    apart, alone = await rows.scored_group(2), await rows.scored_group(1)
    await rows.group()
    assert await ids(store, spread_from="0.5") == [apart]
    assert await ids(store, spread_to="0.5") == [alone]
    assert await ids(store, spread_from="0", spread_to="1") == [alone, apart]


async def test_groups_are_narrowed_by_when_they_were_opened_and_paged_by_their_ids(store: Store, rows: Rows) -> None:
    made = sorted([await rows.group(id=new_id("grp")) for _ in range(3)])
    at = float((await rows.get(groups, made[0]))["opened_at"])
    assert await ids(store, since=f"{at - 5:.3f}") == made[::-1]
    assert await ids(store, until=f"{at - 5:.3f}") == await ids(store, since=f"{at + 60:.3f}") == []
    first = await list_groups(store, PROJECT, limit=2)
    rest = await list_groups(store, PROJECT, before=first.next, limit=2)
    assert [one.id for one in (*first.lines, *rest.lines)] == made[::-1]
    assert rest.next is None
