"""The bounded map: what was not used for longest goes."""

from __future__ import annotations

import time

from recorder.base.lru import Lru


def test_a_cache_forgets_what_was_not_used_for_longest() -> None:
    cache: Lru[str, int] = Lru(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert ("a" in cache, "b" in cache, "c" in cache, len(cache)) == (True, False, True, 2)
    cache.drop("a")
    assert cache.get("a") is None


def evictions_s(cache: Lru[int, int]) -> float:
    """How long 20,000 evictions take, once every entry was replaced."""
    began = time.perf_counter()
    for key in range(2_000_000, 2_020_000):
        cache.put(key, key)
    return time.perf_counter() - began


def test_an_eviction_takes_as_long_in_a_large_old_cache_as_in_a_small_one() -> None:
    small: Lru[int, int] = Lru(100)
    large: Lru[int, int] = Lru(100_000)
    for key in range(150_000):  # a dict would now search 50,000 gaps at every eviction
        large.put(key, key)
    for key in range(150):
        small.put(key, key)
    assert evictions_s(large) < 30 * evictions_s(small)
    assert len(large) == 100_000


def test_what_was_used_stays_and_a_value_is_replaced() -> None:
    cache: Lru[str, int] = Lru(3)
    for key in "abc":
        cache.put(key, 1)
    cache.put("a", 2)  # replaced, and so the newest
    assert cache.get("b") == 1
    cache.put("d", 1)
    assert [key in cache for key in "abcd"] == [True, True, False, True]
    assert cache.get("a") == 2
    assert cache.get("z") is None
