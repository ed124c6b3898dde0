"""Which group a run joins: explicit, implicit, declared with its pin, successors; and attempts made beforehand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from recorder.capture.lookups.statements import MOST_EQUAL
from recorder.capture.recorder import Recorder
from recorder.errors import NotOwner
from recorder.messages.calls import Address, KeyAccess, TrajectoryRef
from recorder.queue.groups.closure import close_group
from recorder.settings import RecorderSettings
from recorder.states import Confidence, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns, groups, trajectories
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, request, user


async def groups_of(store: Store) -> list[Any]:
    async with store.read() as conn:
        return list((await conn.execute(select(groups).order_by(groups.c.opened_at, groups.c.sequence))).all())


async def members_of(store: Store) -> list[Any]:
    async with store.read() as conn:
        return list((await conn.execute(select(trajectories))).all())


async def at(
    talk: Talk, address: Address, offered: str | None = None, text: str = "?", *, named: str | None = None
) -> TrajectoryRef:
    asked = request([user(text)])
    return await talk.recorder.trajectory_at(PROJECT, None, address, asked, offered, own_version=named)


def member(number: int, *, size: int | None = None, group: str = "g") -> Address:
    return Address(group=group, trajectory=str(number), group_size=size)


async def test_an_address_is_one_trajectory(store: Store, talk: Talk) -> None:
    refs = await asyncio.gather(*(at(talk, Address(trajectory="run")) for _ in range(5)))
    assert len({ref.id for ref in refs}) == 1
    assert (await at(talk, Address(trajectory="run"))).id == refs[0].id
    assert (await at(talk, Address(trajectory="other"))).id != refs[0].id


async def test_the_group_is_part_of_the_address(store: Store, talk: Talk) -> None:
    addresses = (member(1, group="a"), member(1, group="b"), Address(trajectory="1"))
    refs = [await at(talk, address) for address in addresses]
    assert len({ref.id for ref in refs}) == 3
    assert len({ref.group_id for ref in refs}) == 3


async def test_a_group_without_a_trajectory_gets_a_new_member_each_time(store: Store, talk: Talk) -> None:
    refs = [await at(talk, Address(group="g")) for _ in range(3)]
    assert len({ref.id for ref in refs}) == 3
    assert len({ref.group_id for ref in refs}) == 1
    by_turn = await talk.call([user("?")], "!", Address(group="g"))
    made = talk.recorder.new_trajectory(Address(group="g"), None)
    await talk.recorder.commit(
        replace(by_turn, call_id="call_2", attribution=replace(by_turn.attribution, trajectory=made))
    )
    async with store.read() as conn:
        homes = set((await conn.execute(select(trajectories.c.group_id))).scalars())
    assert homes == {refs[0].group_id}


async def test_runs_of_one_task_share_an_implicit_group(store: Store, talk: Talk) -> None:
    for number in range(3):
        await talk.call([user("same task")], f"answer {number}")
    await talk.call([user("same task")], "answer", Address(trajectory="named"))
    await talk.call([user("another task")], "answer")
    sizes = []
    for group in await groups_of(store):
        async with store.read() as conn:
            sizes.append(len((await conn.execute(select(trajectories).filter_by(group_id=group.id))).all()))
        assert group.implicit_key is not None
    assert sorted(sizes) == [1, 4]


async def test_measured_runs_have_implicit_groups_of_their_own(store: Store, talk: Talk) -> None:
    refs = [
        await at(talk, Address(trajectory=purpose, purpose=purpose))
        for purpose in (Purpose.TRAIN, Purpose.VAL, Purpose.EVAL, Purpose.NONE)
    ]
    assert len({ref.group_id for ref in refs}) == 4
    assert refs[-1].group_id is None  # recorded, never judged
    assert [ref.purpose for ref in refs] == ["train", "val", "eval", "none"]


async def test_a_declared_group_pins_its_version_at_its_first_call(store: Store, talk: Talk) -> None:
    pins = [(await at(talk, member(n, size=3), offered=f"v{n}")).version_id for n in range(3)]
    assert pins == ["v0", "v0", "v0"]
    (group,) = await groups_of(store)
    assert (group.declared_size, group.version_id) == (3, "v0")


async def test_a_group_that_nobody_declared_does_not_pin(store: Store, talk: Talk) -> None:
    pins = [(await at(talk, member(n), offered=f"v{n}")).version_id for n in range(2)]
    assert pins == ["v0", "v1"]
    (group,) = await groups_of(store)
    assert group.version_id is None


async def test_a_trajectory_whose_version_was_named_has_it_whatever_its_group_is_pinned_to(
    store: Store, talk: Talk
) -> None:
    pins = [
        (await at(talk, member(1, size=3), named="v9")).version_id,  # it does not pin its group
        (await at(talk, member(2, size=3), offered="v0")).version_id,
        (await at(talk, member(3, size=3), named="v8")).version_id,
    ]
    assert pins == ["v9", "v0", "v8"]
    (group,) = await groups_of(store)
    assert group.version_id == "v0"
    assert {row.external_id: row.version_id for row in await members_of(store)} == {"1": "v9", "2": "v0", "3": "v8"}


async def test_an_attempt_made_beforehand_whose_version_is_named_has_it(store: Store, talk: Talk) -> None:
    rows = Rows(store)
    group_id = await rows.group(external_id="g", declared_size=2)
    for number in (1, 2):
        await rows.trajectory(group_id, external_id=str(number), address_group="g", answered=False)
    first = await at(talk, member(1, size=2), named="v0")
    second = await at(talk, member(2, size=2), offered="v3")
    assert (first.version_id, second.version_id) == ("v0", "v3")
    assert {row.external_id: row.version_id for row in await members_of(store)} == {"1": "v0", "2": "v3"}
    (group,) = await groups_of(store)
    assert group.version_id == "v3"


async def test_a_pair_has_the_version_of_each_answer_and_its_group_that_of_the_gate(store: Store, talk: Talk) -> None:
    address = (member(1, size=2), member(2, size=2))
    pins = [(await at(talk, one, "new", named=by)).version_id for one, by in zip(address, ("old", "new"), strict=True)]
    assert pins == ["old", "new"]
    (group,) = await groups_of(store)
    assert group.version_id == "new"


async def test_a_run_of_a_declared_task_has_the_version_that_answered_it_before_the_group_was_known(
    store: Store, talk: Talk
) -> None:
    for number, version in enumerate(("v0", "v1")):  # the live version changed in between
        await talk.call([user("same task")], f"answer {number}", Address(group_size=2), version_id=version)
    assert sorted(str(row.version_id) for row in await members_of(store)) == ["v0", "v1"]
    assert [group.declared_size for group in await groups_of(store)] == [2]


async def test_a_trajectory_keeps_its_pin(store: Store, talk: Talk) -> None:
    await at(talk, Address(trajectory="run"), offered="v0")
    other = Recorder(store, RecorderSettings())
    await other.start()
    try:
        assert (await at(Talk(other), Address(trajectory="run"), offered="v1")).version_id == "v0"
    finally:
        await other.stop()


async def test_a_trajectory_without_an_offer_is_pinned_by_its_first_call(store: Store, talk: Talk) -> None:
    made = await talk.call([user("?")], "!", version_id="v0")
    async with store.read() as conn:
        row = (await conn.execute(select(trajectories))).one()
    assert (row.id, row.version_id) == (made.attribution.trajectory.id, "v0")


async def test_a_new_pin_is_told(talk: Talk) -> None:
    made = await talk.call([user("?")], "!", Address(trajectory="run"), version_id="v0")
    talk.recorder.update_pin(made.attribution.trajectory.id, "v1")
    assert (await at(talk, Address(trajectory="run"), offered="v2")).version_id == "v1"


async def test_a_full_group_has_a_successor(store: Store, talk: Talk) -> None:
    refs = [await at(talk, member(n, size=2)) for n in range(5)]
    assert [refs[0].group_id == ref.group_id for ref in refs] == [True, True, False, False, False]
    found = await groups_of(store)
    assert [(g.external_id, g.sequence, g.declared_size) for g in found] == [("g", 0, 2), ("g", 1, 2), ("g", 2, 2)]


async def test_many_that_join_at_once_share_groups_of_the_declared_size(store: Store, talk: Talk) -> None:
    refs = await asyncio.gather(*(at(talk, member(n, size=4)) for n in range(8)))
    found = await groups_of(store)
    assert [g.sequence for g in found] == [0, 1]
    assert [sum(ref.group_id == g.id for ref in refs) for g in found] == [4, 4]


async def test_an_abandoned_member_leaves_its_place_to_a_rerun(store: Store, talk: Talk) -> None:
    first = await at(talk, member(0, size=2))
    await at(talk, member(1, size=2))
    await talk.recorder.close(PROJECT, first.id, TrajectoryState.ABANDONED, "rerun")
    assert (await at(talk, member(2, size=2))).group_id == first.group_id


async def test_who_comes_after_a_group_was_closed_joins_a_successor(store: Store, talk: Talk) -> None:
    explicit, implicit = await at(talk, member(0)), await at(talk, Address(trajectory="x"))
    for ref in (explicit, implicit):
        assert ref.group_id is not None
        await close_group(Project(store, PROJECT), ref.group_id)
    later = [await at(talk, member(1)), await at(talk, Address(trajectory="y"))]
    assert later[0].group_id != explicit.group_id
    assert later[1].group_id != implicit.group_id
    found = {g.id: g for g in await groups_of(store)}
    assert [found[str(ref.group_id)].sequence for ref in later] == [1, 1]
    assert [found[str(ref.group_id)].state for ref in later] == [GroupState.OPEN, GroupState.OPEN]


async def test_what_an_attempt_does_after_its_end_is_no_member_of_its_declared_group(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], "!", replace(member(0, size=8), done=True))
    straggler = await talk.call([user("?"), assistant("!"), user("more")], "!!", member(0, size=8))
    refs = [first.attribution.trajectory, straggler.attribution.trajectory]
    assert refs[0].group_id != refs[1].group_id
    assert [g.sequence for g in await groups_of(store)] == [0, 1]


async def test_an_attempt_that_was_made_beforehand_is_found_and_pinned(store: Store, rows: Rows, talk: Talk) -> None:
    alias = await rows.alias()
    async with store.write() as conn:
        await conn.execute(sql.insert_ignore(conn, campaigns).values(_campaign(alias.id)))
    group = await rows.group(external_id="g", campaign_id="camp", alias_id=alias.id)
    made = [
        await rows.trajectory(
            group,
            answered=False,
            address_group="g",
            external_id=str(n),
            purpose="val",
            origin=Origin.CAMPAIGN,
        )
        for n in range(2)
    ]
    refs = [await at(talk, member(n), offered=f"v{n}") for n in range(2)]
    assert [ref.id for ref in refs] == made
    assert [ref.purpose for ref in refs] == [Purpose.VAL, Purpose.VAL]
    assert [ref.version_id for ref in refs] == ["v0", "v0"]
    (found,) = await groups_of(store)
    assert found.version_id == "v0"
    async with store.read() as conn:
        pins = (await conn.execute(select(trajectories.c.version_id))).scalars().all()
    assert pins == ["v0", "v0"]


async def test_another_projects_addresses_are_its_own(store: Store, talk: Talk) -> None:
    from recorder.store.bootstrap import ensure_project

    await ensure_project(Project(store, "other"))
    here = await at(talk, member(1))
    there = await talk.recorder.trajectory_at("other", None, member(1), request([user("?")]), None)
    assert here.id != there.id
    assert here.group_id != there.group_id


async def test_calls_are_noted_in_their_group(store: Store, talk: Talk) -> None:
    ref = await at(talk, member(0))
    async with store.write() as conn:
        await conn.execute(update(groups).values(last_call_at=1.0, joined_at=1.0))
    await talk.call([user("?")], "!", member(0))
    (group,) = await groups_of(store)
    assert group.id == ref.group_id
    assert group.last_call_at > 1.0
    assert group.joined_at == 1.0


def _campaign(alias_id: str) -> dict[str, Any]:
    return {
        "id": "camp",
        "project_id": PROJECT,
        "alias_id": alias_id,
        "name": "c",
        "settings": {},
        "state": "running",
        "started_at": 1.0,
    }


# --- several keys


def by(key: str, **address: Any) -> Address:
    return Address(**address, access=KeyAccess(key, everywhere=False))


async def test_of_two_keys_at_one_address_one_has_it(talk: Talk) -> None:
    keys = ("key_1", "key_2", "key_1")
    both = await asyncio.gather(*(at(talk, by(key, trajectory="1")) for key in keys), return_exceptions=True)
    [owner] = {one.made_by for one in both if isinstance(one, TrajectoryRef)}
    assert owner in keys
    own = [one for key, one in zip(keys, both, strict=True) if key == owner]
    assert own == [own[0]] * keys.count(owner)
    for other in (one for key, one in zip(keys, both, strict=True) if key != owner):
        assert isinstance(other, NotOwner)
        assert "the trajectory 1 belongs to another key" in str(other)


async def test_who_is_refused_at_an_ended_run_does_not_keep_its_maker_from_it(talk: Talk) -> None:
    ended = await at(talk, by("key_1", group="g", trajectory="1"))
    await talk.recorder.close(PROJECT, ended.id)
    two, one = await asyncio.gather(
        *(at(talk, by(key, group="g", trajectory="1")) for key in ("key_2", "key_1")), return_exceptions=True
    )
    assert isinstance(two, NotOwner)
    assert isinstance(one, TrajectoryRef)
    assert one.id != ended.id
    assert (one.made_by, one.group_id) == ("key_1", ended.group_id)


async def test_groups_of_one_name_count_up_together(store: Store, talk: Talk) -> None:
    refs = [await at(talk, by(key, group="g", trajectory=f"{n}")) for n, key in enumerate(("a", "b", "a", "b"))]
    assert [refs[0].group_id, refs[1].group_id] == [refs[2].group_id, refs[3].group_id]
    found = [(row.external_id, row.sequence, row.made_by) for row in await groups_of(store)]
    assert found == [("g", 0, "a"), ("g", 1, "b")]


async def test_a_known_run_is_found_without_asking_the_store_whosever_it_is(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await at(talk, by("key_1", trajectory="1"))
    for way in ("read", "write"):
        monkeypatch.setattr(talk.recorder._backend, way, None)
    assert await at(talk, by("key_1", trajectory="1")) == known
    with pytest.raises(NotOwner):
        await at(talk, by("key_2", trajectory="1"))
    assert await at(talk, Address(trajectory="1")) == known


async def test_equal_runs_of_another_key_do_not_hide_ones_own(talk: Talk) -> None:
    own = await talk.call([user("ping")], "pong", by("key_1"))
    address = by("key_2")
    await asyncio.gather(*(talk.call([user("ping")], "pong", address) for _ in range(MOST_EQUAL + 1)))
    found = await talk.recorder.find.lineage(
        PROJECT, [user("ping"), assistant("pong"), user("?")], access=by("key_1").access
    )
    assert found.trajectory is not None
    assert found.trajectory.id == own.attribution.trajectory.id
    assert found.confidence == Confidence.EXACT


async def test_a_full_group_has_a_successor_for_the_next_run(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(group_size=2))
    await recorder.start()
    talk = Talk(recorder)
    first = [await talk.call([user("?")], "!") for _ in range(3)]
    at_once = await asyncio.gather(*(talk.call([user("?")], "!") for _ in range(4)))
    named = [await at(talk, Address(group="g"), text=str(number)) for number in range(3)]
    await recorder.stop()
    rows = {row.id: row.group_id for row in await members_of(store)}
    homes = [rows[turn.attribution.trajectory.id] for turn in (*first, *at_once)]
    assert sorted(homes.count(group) for group in set(homes)) == [1, 2, 2, 2]
    assert homes[0] == homes[1] != homes[2]
    assert len({ref.group_id for ref in named}) == 2
    assert [g.sequence for g in await groups_of(store) if g.external_id is None] == [0, 1, 2, 3]


@pytest.mark.parametrize("left", [2, 1], ids=["full", "almost full"])
async def test_a_successor_counts_on_from_groups_that_closed_before_an_earlier_one(store: Store, left: int) -> None:
    recorder = Recorder(store, RecorderSettings(group_size=2))
    await recorder.start()
    talk = Talk(recorder)
    runs = [await talk.call([user("?")], "!") for _ in range(6)]
    first, second, third = [group.id for group in await groups_of(store)]
    for later in (second, third):
        await close_group(Project(store, PROJECT), later)  # the first one's runs go on
    if left == 1:
        await recorder.close(PROJECT, runs[0].attribution.trajectory.id, TrajectoryState.ABANDONED)
    more = await asyncio.gather(*(talk.call([user("?")], "!") for _ in range(3)))
    await recorder.stop()
    rows = {row.id: row.group_id for row in await members_of(store)}
    homes = [rows[turn.attribution.trajectory.id] for turn in more]
    assert [group.sequence for group in await groups_of(store)] == ([0, 1, 2, 3, 4] if left == 2 else [0, 1, 2, 3])
    assert homes.count(first) == 2 - left
    assert not {second, third} & set(homes)


async def test_a_declared_group_takes_as_many_as_were_declared(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(group_size=2))
    await recorder.start()
    refs = [await at(Talk(recorder), member(number, size=5)) for number in range(5)]
    await recorder.stop()
    assert len({ref.group_id for ref in refs}) == 1


@pytest.mark.parametrize("address", [Address(), Address(trajectory="run")])
async def test_what_continues_a_run_is_no_further_attempt_at_its_opening(
    store: Store, talk: Talk, address: Address
) -> None:
    async def continued(answer: str, more: str) -> tuple[str, str]:
        at = replace(address, trajectory=f"run-{answer}") if address.trajectory else address
        first = await talk.call([user("?")], answer, at)
        run = first.attribution.trajectory.id
        await talk.recorder.close(PROJECT, run)
        later = await talk.call([user("?"), assistant(answer), user(more)], "!!", at)
        return run, later.attribution.trajectory.id

    pairs = [await continued(answer, more) for answer, more in (("a", "more"), ("b", "more"), ("c", "else"))]
    group = {row.id: row.group_id for row in await members_of(store)}
    (a, a2), (b, b2), (c, c2) = [(group[first], group[second]) for first, second in pairs]
    assert a == b == c
    assert a2 == b2
    assert len({a, a2, c2}) == 3


async def test_runs_at_tasks_that_are_alike_share_a_group_where_that_is_set(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(same_task="normalised"))
    await recorder.start()
    asked = ("Where is order 1?", "Where is order 2?", "Cancel order 2.")
    runs = [(await Talk(recorder).call([user(text)], "!")).attribution.trajectory.id for text in asked]
    await recorder.stop()
    group = {row.id: row.group_id for row in await members_of(store)}  # ids of one millisecond are in no order
    homes = [group[run] for run in runs]
    assert homes[0] == homes[1] != homes[2]
