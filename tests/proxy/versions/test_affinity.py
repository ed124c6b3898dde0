"""Which engine a trajectory gets: the order by hash, the bound on calls in flight, and both over time."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.versions.affinity import (
    LOAD_BOUND,
    affinity_key,
    choose_engine,
    least_busy,
    max_in_flight,
    order_engines,
)
from recorder.messages.calls import TrajectoryRef

keys = st.text(max_size=20)
engines = st.lists(st.integers(0, 50).map("http://engine:{}".format), min_size=1, max_size=8, unique=True)
loads = st.dictionaries(st.integers(0, 50).map("http://engine:{}".format), st.integers(0, 40), min_size=1, max_size=8)


def urls(count: int) -> list[str]:
    return [f"http://engine:{n}" for n in range(count)]


@given(keys, engines, st.randoms())
def test_the_order_is_that_of_the_hash_however_the_engines_are_listed(
    key: str, listed: list[str], rng: random.Random
) -> None:
    shuffled = rng.sample(listed, len(listed))
    assert order_engines(key, shuffled) == order_engines(key, listed)
    assert sorted(order_engines(key, listed)) == sorted(listed)


@given(keys, engines)
def test_an_engine_that_goes_moves_no_key_of_another(key: str, listed: list[str]) -> None:
    order = order_engines(key, listed)
    for gone in listed:
        rest = [url for url in listed if url != gone]
        assert order_engines(key, rest) == [url for url in order if url != gone]


def test_an_engine_that_comes_takes_its_share_of_the_keys_and_moves_no_other() -> None:
    drawn = {str(n): order_engines(str(n), urls(4))[0] for n in range(4000)}
    after = {key: order_engines(key, urls(5))[0] for key in drawn}
    moved = {key for key in drawn if after[key] != drawn[key]}
    assert {after[key] for key in moved} == {urls(5)[4]}
    assert len(moved) == pytest.approx(800, rel=0.1)


def test_keys_spread_evenly() -> None:
    counts = Counter(order_engines(str(n), urls(4))[0] for n in range(4000))
    assert [counts[url] for url in urls(4)] == [pytest.approx(1000, rel=0.1)] * 4


@given(keys, loads)
def test_the_first_engine_in_order_under_the_bound_is_chosen(key: str, in_flight: dict[str, int]) -> None:
    bound = max_in_flight(sum(in_flight.values()), len(in_flight))
    chosen = choose_engine(key, in_flight)
    order = order_engines(key, in_flight)
    assert in_flight[chosen] < bound
    assert all(in_flight[url] >= bound for url in order[: order.index(chosen)])


@given(st.lists(keys, max_size=60), engines)
def test_no_engine_gets_more_than_its_bound_of_calls_that_begin(begun: list[str], listed: list[str]) -> None:
    in_flight = dict.fromkeys(listed, 0)
    for calls, key in enumerate(begun, 1):
        in_flight[choose_engine(key, in_flight)] += 1
        assert max(in_flight.values()) <= max_in_flight(calls - 1, len(listed))


def test_the_bound_is_a_quarter_above_the_mean_with_the_new_call() -> None:
    assert LOAD_BOUND == 1.25
    assert [max_in_flight(calls, 2) for calls in (0, 1, 2, 7, 15)] == [1, 2, 2, 5, 10]
    assert max_in_flight(39, 1) == 50


def test_a_group_of_one_key_fills_its_engine_up_to_the_bound() -> None:
    in_flight = dict.fromkeys(urls(2), 0)
    for _ in range(8):
        in_flight[choose_engine("group", in_flight)] += 1
    assert sorted(in_flight.values()) == [3, 5]


def test_the_key_is_that_of_a_group_that_was_named_else_the_trajectorys() -> None:
    assert affinity_key(TrajectoryRef("traj_1", "group_1", "1", "orders")) == "group_1"
    assert affinity_key(TrajectoryRef("traj_1", "group_1", "1")) == "traj_1"  # an implicit group
    assert affinity_key(TrajectoryRef("traj_1", None)) == "traj_1"


def test_a_call_without_a_key_goes_to_the_least_busy_engine() -> None:
    assert least_busy({"a": 2, "b": 1, "c": 1}) == "b"


@dataclass
class Simulation:
    """Agents that call engines by the rule, in simulated seconds: a call, then a tool, so many turns a trajectory."""

    rng: random.Random
    engines: int
    agents: int
    now: float = 0.0
    in_flight: Counter[str] = field(default_factory=Counter)
    busy_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by engine: calls × seconds
    later: int = 0  # turns after a trajectory's first
    on_their_engine: int = 0
    home: dict[str, str] = field(default_factory=dict)
    down: dict[str, tuple[float, float]] = field(default_factory=dict)  # engine → from, until

    def run(self, seconds: float) -> None:
        """Simulate so many seconds. Eight members of a group begin one after the other, and each has 4 to 16 turns."""
        events: list[
            tuple[float, int, str, int, str | None]
        ] = []  # when, agent, trajectory, turns left, engine to free
        names = iter(range(10**9))
        for agent in range(self.agents):
            heapq.heappush(events, (self.rng.uniform(0, 2), agent, *self._begun(next(names)), None))
        while events and events[0][0] < seconds:
            at, agent, name, left, ends = heapq.heappop(events)
            for url, count in self.in_flight.items():
                self.busy_s[url] += count * (at - self.now)
            self.now = at
            if ends is not None:  # the call ends; a tool runs
                self.in_flight[ends] -= 1
                if not left:
                    name, left = self._begun(next(names))
                heapq.heappush(events, (at + self.rng.expovariate(2.0), agent, name, left, None))
                continue
            url = self._engine(name)
            self.in_flight[url] += 1
            heapq.heappush(events, (at + self.rng.uniform(0.5, 1.5), agent, name, left - 1, url))

    def _begun(self, number: int) -> tuple[str, int]:
        return f"group {number // 8}/{number}", self.rng.randint(4, 16)

    def _engine(self, name: str) -> str:
        able = {url: self.in_flight[url] for url in urls(self.engines) if not self._is_down(url)}
        known = self.home.get(name)
        if known is not None:
            self.later += 1
            self.on_their_engine += known in able
        if known not in able:
            known = self.home[name] = choose_engine(name.partition("/")[0], able)
        return known

    def _is_down(self, url: str) -> bool:
        since, until = self.down.get(url, (0.0, 0.0))
        return since <= self.now < until

    def imbalance(self) -> float:
        """The load of the busiest engine over time, as a multiple of the mean."""
        loads = [self.busy_s[url] for url in urls(self.engines)]
        return max(loads) * len(loads) / sum(loads)


@pytest.mark.parametrize(("engines", "agents"), [(2, 14), (2, 32), (3, 24), (4, 48), (8, 96)])
@pytest.mark.parametrize("seed", range(3))
def test_turns_stay_on_their_engine_and_engines_are_busy_alike(engines: int, agents: int, seed: int) -> None:
    simulated = Simulation(random.Random(seed), engines, agents)
    simulated.run(400.0)
    assert sum(simulated.busy_s.values()) / simulated.now >= 8, "at least 8 calls in flight"
    assert simulated.on_their_engine == simulated.later > 1000
    assert simulated.imbalance() <= 1.25


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_that_is_down_for_a_moment_costs_its_trajectories_one_turn(seed: int) -> None:
    simulated = Simulation(random.Random(seed), 3, 24, down={urls(3)[1]: (100.0, 110.0)})
    simulated.run(400.0)
    assert 0.95 <= simulated.on_their_engine / simulated.later < 1
    assert simulated.imbalance() <= 1.25
