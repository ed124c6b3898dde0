"""A bounded map that drops the least recently used entry, for the caches of a process.

Owns: the bound and the order. Refuses: times of expiry, and telling why a key is not there.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A dict of at most `size` entries that drops the least recently used one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value, and make it the newest; None if there is none."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value`; drop the oldest entry if the map is full."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]

    def drop(self, key: K) -> None:
        """Remove `key`, if it exists."""
        self._entries.pop(key, None)
