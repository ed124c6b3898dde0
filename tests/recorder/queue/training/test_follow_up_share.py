"""One key's follow-ups are at most their share of a step; the rest waits, and is said to wait."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from recorder.queue import claims
from recorder.queue.judging.scores import NewPart
from recorder.queue.training.follow_up_share import (
    FOLLOW_UP_SHARE,
    StepGroup,
    apply_share,
    choose_groups,
    find_waiting,
    largest_share,
    load_key_families,
    load_step_groups,
    write_waiting,
)
from recorder.store import ledger
from recorder.store.schema import trajectories
from tests.recorder.rows import PROJECT, Rows

KEYS: Final = ("ann", "bob", "cleo")


@st.composite
def candidate_groups(draw: st.DrawFn) -> list[StepGroup]:
    found = []
    for number in range(draw(st.integers(0, 24))):
        of_keys = draw(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 3), max_size=2))
        others = draw(st.integers(0 if of_keys else 1, 4))
        found.append(StepGroup(f"g{number:02}", sum(of_keys.values()) + others, of_keys))
    return found


def bound(candidates: list[StepGroup], share: float) -> float:
    return max(share, 1 / max(1, len({key for one in candidates for key in one.follow_ups})))


def step_of(candidates: list[StepGroup], waiting: list[str], limit: int) -> list[StepGroup]:
    return [one for one in candidates if one.id not in waiting][:limit]


@given(candidate_groups(), st.floats(0.05, 1), st.integers(1, 12))
def test_no_key_has_more_than_its_share_of_a_step(candidates: list[StepGroup], share: float, limit: int) -> None:
    """Nor than an equal part, with fewer keys than the share needs; unless not one group by itself is within that."""
    step = step_of(candidates, find_waiting(candidates, share, limit), limit)
    of_key: Counter[str] = Counter()
    for one in step:
        of_key.update(one.follow_ups)
    whole = sum(one.trajectories for one in step)
    most = bound(candidates, share)
    if any(largest_share([one]) <= most for one in candidates):
        assert all(number <= most * whole + 1e-6 for number in of_key.values())
    assert largest_share(step) == max(of_key.values(), default=0) / max(1, whole)


@given(candidate_groups(), st.floats(0.05, 1), st.integers(1, 12))
def test_there_is_always_a_step(candidates: list[StepGroup], share: float, limit: int) -> None:
    assert bool(step_of(candidates, find_waiting(candidates, share, limit), limit)) == bool(candidates)


@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=24), st.floats(0.2, 1), st.integers(3, 12))
def test_keys_that_are_fewer_than_the_share_needs_share_equally(keys: list[str], part: float, limit: int) -> None:
    """With more than an equal part each, as with a share of 1, a key may have all of a step: none is fewer then."""
    names = set(keys)
    candidates = [follow_up(f"g{number:02}", key) for number, key in enumerate(keys)]
    step = step_of(candidates, find_waiting(candidates, part / len(names), limit), limit)
    of_key = Counter(key for one in step for key in one.follow_ups)
    assert set(of_key) == names
    assert len(set(of_key.values())) == 1


@given(candidate_groups(), st.floats(0.05, 1), st.integers(1, 12))
def test_what_is_no_follow_up_of_a_key_never_waits(candidates: list[StepGroup], share: float, limit: int) -> None:
    waiting = find_waiting(candidates, share, limit)
    assert all(one.follow_ups for one in candidates if one.id in waiting)
    assert find_waiting(candidates, 1.0, limit) == []


@given(candidate_groups(), st.floats(0.05, 1))
def test_a_group_that_waits_would_exceed_the_share(candidates: list[StepGroup], share: float) -> None:
    limit = len(candidates) + 1
    waiting = find_waiting(candidates, share, limit)
    step = step_of(candidates, waiting, limit)
    if waiting:
        last = next(one for one in reversed(candidates) if one.id in waiting)
        of_key = sum((Counter(one.follow_ups) for one in (*step, last)), Counter[str]())
        whole = sum(one.trajectories for one in (*step, last))
        assert any(of_key[key] > bound(candidates, share) * whole for key in last.follow_ups)


def follow_up(id_: str, key: str) -> StepGroup:
    return StepGroup(id_, 1, {key: 1})


def test_a_backlog_of_one_key_does_not_keep_the_others_out() -> None:
    backlog = [follow_up(f"a{number}", "ann") for number in range(100)]
    others = [follow_up(f"z{key}", key) for key in ("b", "c", "d", "e")]
    waiting = find_waiting([*backlog, *others], 0.2, 8)
    assert waiting == [f"a{number}" for number in range(1, 100)]  # the oldest one of five is taken


def test_a_key_alone_is_not_limited() -> None:
    backlog = [follow_up(f"a{number}", "ann") for number in range(9)]
    assert find_waiting(backlog, 0.2, 8) == []


def test_of_two_keys_each_may_have_half() -> None:
    backlog = [follow_up(f"a{number}", "ann") for number in range(9)]
    others = [follow_up(f"b{number}", "bob") for number in range(3)]
    assert find_waiting([*backlog, *others], 0.2, 8) == [f"a{number}" for number in range(3, 9)]


def test_as_many_keys_as_the_share_allows_make_a_step() -> None:
    each = [follow_up(key, key) for key in ("a", "b", "c", "d", "e")]
    assert find_waiting(each, 0.2, 8) == []


def test_a_group_larger_than_its_part_waits_and_the_others_do_not() -> None:
    others = [follow_up(key, key) for key in ("b", "c", "d", "e")]
    assert find_waiting([StepGroup("a", 3, {"ann": 3}), *others], 0.2, 8) == ["a"]
    assert find_waiting([StepGroup("a", 3, {"ann": 2, "bob": 1})], 0.2, 8) == []


async def scored_alone(rows: Rows, alias_id: str, key: str, *, follow_up: bool) -> str:
    group = await rows.ready_group(1, alias_id=alias_id)
    (run,) = await rows.members(group)
    await rows.set(trajectories, run, made_by=key)
    await rows.score(group, parts=[NewPart(run, "reward", 1.0)], follow_up=follow_up)
    return group


async def test_the_learner_takes_a_step_within_the_share_and_the_rest_stays_scored(rows: Rows) -> None:
    alias = await rows.alias()
    of_ann = [await scored_alone(rows, alias.id, "ann", follow_up=True) for _ in range(4)]
    of_bob = await scored_alone(rows, alias.id, "bob", follow_up=True)
    judged = await scored_alone(rows, alias.id, "ann", follow_up=False)
    keyless = await scored_alone(rows, alias.id, "", follow_up=True)
    assert await choose_groups(rows.store, alias.id, 1.0, 8) is None
    choice = await choose_groups(rows.store, alias.id, 0.2, 8)
    assert choice is not None
    assert list(choice.taken) == [*of_ann[:3], of_bob, judged, keyless]
    assert list(choice.waiting) == of_ann[3:]
    there = await claims.waiting_for_training(rows.store, alias.id)
    counted = await apply_share(rows.store, alias.id, there, 0.2, 8)
    assert (counted.groups, counted.held, counted.follow_ups) == (6, 1, 1)
    assert await apply_share(rows.store, alias.id, there, 1.0, 8) == there
    took = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=8, group_ids=choice.taken)
    assert [claim.group_id for claim in took] == list(choice.taken)
    alone = await choose_groups(rows.store, alias.id, 0.2, 8)
    assert alone is not None
    assert alone.taken == of_ann[3:]


async def test_without_follow_ups_the_share_chooses_nothing(rows: Rows) -> None:
    alias = await rows.alias()
    await scored_alone(rows, alias.id, "ann", follow_up=False)
    assert await choose_groups(rows.store, alias.id, 0.2, 8) is None
    there = await claims.waiting_for_training(rows.store, alias.id)
    assert await apply_share(rows.store, alias.id, there, 0.2, 8) == there


async def test_only_a_rewarded_trajectory_counts_and_only_a_key_is_limited(rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.ready_group(3, alias_id=alias.id)
    first, second, third = await rows.members(group)
    await rows.set(trajectories, first, made_by="ann")
    await rows.set(trajectories, second, made_by="ann")
    parts = [NewPart(first, "reward", 1.0), NewPart(second, "reward", None), NewPart(third, "reward", 0.0)]
    await rows.score(group, parts=parts, follow_up=True)
    async with rows.store.read() as conn:
        [found] = await load_step_groups(conn, claims.is_claimable(alias.id, None))
    assert (found.id, found.trajectories, found.follow_ups) == (group, 2, {"ann": 1})
    assert await load_key_families(rows.store, [first, third]) == {first: "ann"}


async def test_the_ledger_says_once_that_a_group_waits(rows: Rows) -> None:
    group = await rows.scored_group()
    for _ in range(2):
        await write_waiting(rows.store, PROJECT, [group], 0.2)
    said = [one for one in await ledger.object_entries(rows.store, "group", group) if one.code == FOLLOW_UP_SHARE]
    assert [one.detail for one in said] == [{"share": 0.2}]
