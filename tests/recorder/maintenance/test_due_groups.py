"""When groups close: the sweep closes each when the rule says so, and the forecast tells that moment beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from recorder.maintenance.sweep import sweep
from recorder.queue.groups.readiness import WAIT, GroupFacts, GroupVerdict, Readiness, ReadinessMember, readiness
from recorder.settings import RecorderSettings
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import choices, groups, trajectories
from recorder.views.status.stage_facts import next_close_at
from tests.effort import scaled
from tests.recorder.rows import PROJECT, Rows
from tests.stores import Stores, opened

# All times of the record are odd multiples of STEP_S, and all limits even ones. So everything that time changes happens
# at least STEP_S before or after the moment at which it is asked about, and no machine is so slow.
STEP_S: Final = 50.0
SETTINGS: Final = RecorderSettings(
    answered_idle_s=4 * STEP_S, idle_timeout_s=12 * STEP_S, group_window_s=8 * STEP_S, group_timeout_s=10 * STEP_S,
    group_size=3,
)  # fmt: skip
ASIDE_S: Final = (-STEP_S / 2, STEP_S / 2)
# Each example has a store of its own, so few are tried, and the smallest that fails is not looked for.
FEW: Final = settings(max_examples=scaled(15), phases=(Phase.explicit, Phase.reuse, Phase.generate))
Answer = Literal["text", "tools", "none", "running"]


@dataclass(frozen=True, slots=True)
class Run:
    """A trajectory; `age_s`: how long ago its last call was. `answer`: its newest call's."""

    state: TrajectoryState
    age_s: float
    answer: Answer = "text"
    origin: Origin = Origin.LIVE
    purpose: Purpose = Purpose.TRAIN
    selection: str | None = None

    @property
    def is_foreseen(self) -> bool:
        """Whether it has ended, or time alone ends it."""
        return self.answer != "running" and (self.state != TrajectoryState.OPEN or self.origin == Origin.LIVE)

    def at(self, in_s: float) -> ReadinessMember:
        """What it is in so many seconds."""
        patience_s = SETTINGS.answered_idle_s if self.answer == "text" else SETTINGS.idle_timeout_s
        if self.state != TrajectoryState.OPEN or not self.is_foreseen or in_s + self.age_s < patience_s:
            return ReadinessMember(self.state, self.purpose, self.selection)
        ended = TrajectoryState.ERRORED if self.answer == "none" else TrajectoryState.COMPLETED
        return ReadinessMember(ended, self.purpose, self.selection)


@dataclass(slots=True)
class Group:
    """An open group, as it is drawn; `id` and `alias_id`: of its row."""

    declared_size: int | None
    joined_s: float
    called_s: float
    runs: Sequence[Run]
    id: str = field(default="", init=False)
    alias_id: str = field(default="", init=False)

    def becomes(self, in_s: float) -> Readiness:
        """What the rule makes of it in so many seconds."""
        facts = GroupFacts(self.declared_size, -self.joined_s, -self.called_s)
        return readiness(facts, [run.at(in_s) for run in self.runs], in_s, SETTINGS)


ages = st.integers(0, 15).map(lambda steps: (2 * steps + 1) * STEP_S)
runs = st.builds(
    Run,
    state=st.sampled_from([TrajectoryState.OPEN, TrajectoryState.OPEN, *TrajectoryState]),
    age_s=ages,
    answer=st.sampled_from(["text", "text", "tools", "none"]),
    purpose=st.sampled_from([Purpose.TRAIN, Purpose.TRAIN, *Purpose]),
    selection=st.sampled_from([None, None, None, "not_selected"]),
)
held = st.builds(Run, state=st.just(TrajectoryState.OPEN), age_s=ages, answer=st.just("running")) | st.builds(
    Run, state=st.just(TrajectoryState.OPEN), age_s=ages, origin=st.just(Origin.CAMPAIGN)
)


def drawn(members: st.SearchStrategy[Run], most: int) -> st.SearchStrategy[Group]:
    sizes = st.none() | st.integers(1, 4)
    return st.builds(Group, sizes, joined_s=ages, called_s=ages, runs=st.lists(members, max_size=most))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("due")


class World:
    """A store with groups in it, whose clock can be put forward."""

    def __init__(self, store: Store) -> None:
        self.rows = Rows(store)
        self._began_at = 0.0  # by the database's clock; less by as much as the clock was put forward

    async def write(self, drawn: Sequence[Group]) -> None:
        async with self.rows.store.read() as conn:
            self._began_at = await sql.current_time(conn)
        for number, group in enumerate(drawn):
            group.alias_id = (await self.rows.alias(f"alias-{number}")).id
            group.id = await self.rows.group(
                alias_id=group.alias_id,
                declared_size=group.declared_size,
                joined_at=self._began_at - group.joined_s,
                last_call_at=self._began_at - group.called_s,
            )
            for run in group.runs:
                await self._trajectory(group.id, run)

    async def _trajectory(self, group_id: str, run: Run) -> None:
        made = await self.rows.trajectory(
            group_id,
            answered=False,
            state=run.state,
            origin=run.origin,
            purpose=run.purpose,
            selection=run.selection,
            last_call_at=self._began_at - run.age_s,
        )
        if run.answer == "none":
            return
        call = await self.rows.call(made, sampled=0)
        says = "tool_calls" if run.answer == "tools" else "stop"
        await self.rows.insert(choices, {"call_id": call, "index": 0, "trainable": True, "finish_reason": says})
        await self.rows.set(trajectories, made, leaf_call_id=call)
        if run.answer == "running":
            await self.rows.call(made, sampled=0, state="open")

    async def wait_until(self, in_s: float) -> None:
        """Put the clock to so many seconds after the beginning: all that happened is longer ago from now on."""
        async with self.rows.store.write() as conn:
            back_s = in_s - (await sql.current_time(conn) - self._began_at)
            shifted = {"joined_at": groups.c.joined_at - back_s, "last_call_at": groups.c.last_call_at - back_s}
            await conn.execute(update(groups).values(**shifted))
            await conn.execute(update(trajectories).values(last_call_at=trajectories.c.last_call_at - back_s))
        self._began_at -= back_s

    async def forecast(self, group: Group | None = None) -> float | None:
        """In how many seconds after the beginning a group, or any, is said to close."""
        alias_id = group.alias_id if group is not None else None
        closes = await next_close_at(Project(self.rows.store, PROJECT), SETTINGS, alias_id)
        return None if closes is None else closes - self._began_at

    async def swept(self, group: Group) -> Readiness:
        """What has become of a group."""
        row = await self.rows.get(groups, group.id)
        if row["state"] == "open":
            return WAIT
        return Readiness(GroupVerdict(row["state"]), row["reason"])


@given(drawn=st.lists(drawn(runs | held, 4), min_size=1, max_size=3))
@FEW
def test_the_sweep_closes_those_groups_that_the_rule_closes(
    stores: Stores, folder: Path, drawn: Sequence[Group]
) -> None:
    async def check() -> None:
        async with opened(stores, folder) as store:
            world = World(store)
            await world.write(drawn)
            await sweep(Project(store, PROJECT), SETTINGS)
            assert [await world.swept(group) for group in drawn] == [group.becomes(0.0) for group in drawn]

    asyncio.run(check())


@given(drawn=st.lists(drawn(runs, 4), min_size=1, max_size=3))
@FEW
def test_each_group_closes_at_the_moment_that_was_forecast_and_not_before(
    stores: Stores, folder: Path, drawn: Sequence[Group]
) -> None:
    async def check() -> None:
        async with opened(stores, folder) as store:
            world = World(store)
            await world.write(drawn)
            forecasts = {group.id: at for group in drawn if (at := await world.forecast(group)) is not None}
            assert len(forecasts) == len(drawn)
            assert await world.forecast() == min(forecasts.values())
            became = dict.fromkeys(forecasts, WAIT)
            for then in sorted({max(0.0, at + aside_s) for at in forecasts.values() for aside_s in ASIDE_S}):
                await world.wait_until(then)
                await sweep(Project(store, PROJECT), SETTINGS)
                for group in drawn:
                    if became[group.id] == WAIT:  # what has closed changes no more
                        became[group.id] = group.becomes(then)
                    assert await world.swept(group) == became[group.id]
                    assert (became[group.id] != WAIT) == (then >= forecasts[group.id])

    asyncio.run(check())


@given(runs=st.lists(runs, max_size=2), one=held)
@FEW
def test_nothing_is_forecast_of_a_group_that_time_alone_does_not_close(
    stores: Stores, folder: Path, runs: Sequence[Run], one: Run
) -> None:
    async def check() -> None:
        async with opened(stores, folder) as store:
            world = World(store)
            await world.write([Group(None, STEP_S, STEP_S, [*runs, one])])
            assert await world.forecast() is None

    asyncio.run(check())
