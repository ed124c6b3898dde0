"""A bounded map that forgets what was not used for longest: what a process remembers is kept in these.

Owns: the bound and the order. Refuses: times of expiry, and telling why a key is not there.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A dict of at most `size` entries that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value, which is now the newest; None where it is not remembered."""
        value = self._entries.pop(key, None)
        if value is not None:
            self._entries[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Remember `value`; the oldest goes where there is no room."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]

    def drop(self, key: K) -> None:
        """Forget `key`, if it is remembered."""
        self._entries.pop(key, None)
