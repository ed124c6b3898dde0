"""The bounded map: what was not used for longest goes."""

from __future__ import annotations

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
