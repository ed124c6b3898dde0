"""Affinity: which engine answers a trajectory, so that its calls find the prefix that the call before left in a cache.

Owns: the rule, as pure functions of a key and of calls in flight: rendezvous hashing with bounded loads. Each process
computes the same order of engines for a key. Where an engine comes or goes, only keys move that get it or had it.
Refuses: which engines can serve a version and which engine a trajectory has already (`proxy.versions.routing`), where
that is stored (`recorder.capture`), and I/O.

Sources: rendezvous hashing, Thaler and Ravishankar 1998; bounded loads, Mirrokni, Thorup and Zadimoghaddam 2018,
"Consistent Hashing with Bounded Loads", with ε = 0.25.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from recorder.messages.calls import TrajectoryRef

LOAD_BOUND: Final = 1.25  # calls in flight that one engine may have for new trajectories, as a multiple of the mean


def affinity_key(trajectory: TrajectoryRef) -> str:
    """Return what decides a trajectory's first engine: the id of the group that it names, else its own id.

    The members of such a group have the same first messages, so their prefix is computed once.
    """
    named = trajectory.group_id if trajectory.group_external_id else None
    return named or trajectory.id


def order_engines(key: str, urls: Iterable[str]) -> list[str]:
    """Return the engines in the order in which `key` takes them, which is equal in every process."""
    return sorted(urls, key=lambda url: (blake2b(f"{key}\0{url}".encode(), digest_size=8).digest(), url))


def choose_engine(key: str, in_flight: Mapping[str, int]) -> str:
    """Return the first engine in the key's order that has fewer calls in flight than the bound.

    `in_flight`: engine URL → calls, of the engines that can serve; at least one. Some engine is always under the bound,
    because the least busy one has at most the mean.
    """
    bound = max_in_flight(sum(in_flight.values()), len(in_flight))
    return next(url for url in order_engines(key, in_flight) if in_flight[url] < bound)


def max_in_flight(calls: int, engines: int) -> int:
    """Return the number of calls from which on an engine gets no new trajectory, with so many calls on all engines."""
    return math.ceil(LOAD_BOUND * (calls + 1) / engines)


def least_busy(in_flight: Mapping[str, int]) -> str:
    """Return the engine with the fewest calls in flight, the first of equal ones: for calls without a trajectory."""
    return min(in_flight, key=in_flight.__getitem__)
