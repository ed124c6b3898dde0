"""A bounded map that drops the least recently used entry, for the caches of a process.

Owns: the bound and the order. An eviction takes the same time however many entries came and went; a plain dict keeps a
gap for each deleted entry, and the search for its first entry walks all gaps. Refuses: times of expiry, and telling why
a key is not there.

One thread writes; others may read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(OrderedDict[K, V]):
    """A dict of at most `size` entries that drops the least recently used one. No value is None.

    Use only `in`, `len` and the methods below. It is a dict, and has none, because `in` is then no call of a function:
    a recorded call looks up nine keys.
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def get(self, key: K) -> V | None:  # type: ignore[override]  # no default
        """Return the value, and make it the newest; None if there is none."""
        value = super().get(key)
        if value is not None:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread dropped it meanwhile
                return value
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value`; drop the oldest entry if the map is full."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self.size:
            self.popitem(last=False)

    def take(self, key: K) -> V | None:
        """Remove `key`, and return its value; None if there is none."""
        return self.pop(key, None)

    def drop(self, key: K) -> None:
        """Remove `key`, if it exists."""
        self.pop(key, None)
