"""A bounded map that drops the least recently used entry, for the caches of a process.

Owns: the bound and the order. An eviction takes the same time however many entries came and went; a plain dict keeps a
gap for each deleted entry, and the search for its first entry walks all gaps. Refuses: times of expiry, and telling why
a key is not there.

One thread writes; others may read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A dict of at most `size` entries that drops the least recently used one. No value is None."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value, and make it the newest; None if there is none."""
        value = self._entries.get(key)
        if value is not None:
            try:
                self._entries.move_to_end(key)
            except KeyError:  # another thread dropped it meanwhile
                return value
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value`; drop the oldest entry if the map is full."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)

    def take(self, key: K) -> V | None:
        """Remove `key`, and return its value; None if there is none."""
        return self._entries.pop(key, None)

    def drop(self, key: K) -> None:
        """Remove `key`, if it exists."""
        self._entries.pop(key, None)
