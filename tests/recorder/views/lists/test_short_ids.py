"""Short ids: what lists show is what commands take, and a caller's own id comes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import InvalidId
from recorder.ids import new_id
from recorder.store.database import Project
from recorder.store.schema import groups, trajectories
from recorder.views.lists.short_ids import SHOWN, cut_id, cut_ids, expand_id, shorten_id
from tests.recorder.rows import PROJECT, Rows


@given(st.sampled_from(["traj", "group", "call"]))
def test_a_short_id_is_the_end_of_one_of_ours(kind: str) -> None:
    id_ = new_id(kind)
    shown = shorten_id(id_)
    assert shown is not None
    assert (id_.endswith(shown), len(shown)) == (True, SHOWN)


@pytest.mark.parametrize(
    "name", [None, "run-1", "helpdesk@3", "orders_1", "a_long_name_that_a_caller_gave_itself", "ver_" + 26 * "0"]
)
def test_what_is_none_of_ours_is_shown_as_it_is(name: str | None) -> None:
    assert shorten_id(name) == name


own_ids = st.sampled_from(["traj", "group", "call"]).map(new_id)
given_ids = st.text("ab01-.", min_size=1, max_size=90)
# as a campaign names its groups, and as callers often do: one long beginning, one end, and the middle differs
alike_ids = st.builds("{}.{}.{}".format, st.just("camp_01jx0000000000000000000000"), given_ids, st.just("val.0000"))
ids_of_a_list = st.lists(own_ids | given_ids | alike_ids, max_size=12)


@given(ids_of_a_list)
def test_two_ids_of_a_list_never_look_equal(ids: list[str]) -> None:
    shown = cut_ids(ids)
    assert shown.keys() == set(ids)
    assert len(set(map(str, shown.values()))) == len(shown)
    assert all(short.whole == id_ for id_, short in shown.items())


@given(given_ids | own_ids)
def test_a_cut_id_keeps_its_end_and_is_never_longer(id_: str) -> None:
    short = cut_id(id_)
    assert len(str(short)) <= len(id_)
    assert not short.hidden or id_.endswith(short.tail)
    assert len(short.tail) >= SHOWN or not short.hidden


@given(st.lists(own_ids, unique=True, min_size=2, max_size=2))
def test_of_hones_own_ids_the_kind_and_the_random_end_stay(ids: list[str]) -> None:
    for id_ in ids:
        assert str(cut_id(id_)) == f"{id_.partition('_')[0]}_…{id_[-SHOWN:]}"


async def test_what_a_page_shows_of_an_id_stands_for_it(rows: Rows) -> None:
    run = await rows.trajectory(id=new_id("traj"))
    for name in (str(cut_id(run)), f"…{run[-SHOWN:]}"):
        assert await expand_id(Project(rows.store, PROJECT), name) == run


async def test_an_end_stands_for_the_run_or_the_group_that_has_it(rows: Rows) -> None:
    run, group = await rows.trajectory(id=new_id("traj")), await rows.group(id=new_id("group"))
    for id_ in (run, group):
        assert [await expand_id(Project(rows.store, PROJECT), id_[-length:]) for length in (6, SHOWN, 26)] == [id_] * 3
        assert await expand_id(Project(rows.store, PROJECT), id_) == id_
        assert await expand_id(Project(rows.store, PROJECT), id_[-5:]) == id_[-5:]  # too short to mean it
        assert await expand_id(Project(rows.store, "another project"), id_[-SHOWN:]) == id_[-SHOWN:]


async def test_an_id_that_a_caller_gave_comes_first(rows: Rows) -> None:
    run, other = await rows.trajectory(id=new_id("traj")), await rows.trajectory()
    await rows.set(trajectories, other, external_id=run[-SHOWN:])
    assert await expand_id(Project(rows.store, PROJECT), run[-SHOWN:]) == run[-SHOWN:]
    group, named = await rows.group(id=new_id("group")), await rows.group()
    await rows.set(groups, named, external_id=group[-SHOWN:])
    assert await expand_id(Project(rows.store, PROJECT), group[-SHOWN:]) == group[-SHOWN:]


async def test_an_end_that_several_have_is_refused_with_their_ids(rows: Rows) -> None:
    ids = [await rows.trajectory(id="traj_" + first + "0" * 18 + "sameends") for first in ("1", "2")]
    with pytest.raises(InvalidId, match="Write more characters") as caught:
        await expand_id(Project(rows.store, PROJECT), "sameends")
    assert all(id_ in str(caught.value) for id_ in ids)
