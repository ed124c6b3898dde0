"""Guests: earlier versions that engines hold for a while, because a gate compares a new version with them.

Owns: which version is the guest, and whether it has a slot. Refuses: loading and unloading (a round of the controller
does, as of the versions that are kept), and comparing (`proxy.gate.earlier`).

A guest displaces nothing. It takes a slot of `engine.max_loras` that no kept version takes, the one that stays free for
the next version if need be: that one then waits, and the guest leaves when its comparison ends. There is at most one
guest; a second gate waits for its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from proxy.versions.fleet import Member
from recorder.registry.versions import VersionView


@dataclass
class Guest:
    """A version that engines are to hold. `missing`: why they do not, in words; None: they do."""

    version: VersionView
    missing: str | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # set: a round has seen it

    def settle(self, held: Sequence[VersionView], up: Sequence[Member]) -> None:
        """Note whether engines hold it, after a round had all that are `up` load the versions `held`."""
        name, engine_name = self.version.name, self.version.engine_name
        lacking = [member for member in up if engine_name not in member.offered]
        if self.version.id not in {one.id for one in held}:
            self.missing = f"the engines have no free slot for {name} (engine.max_loras)"
        elif lacking:
            self.missing = f"{lacking[0].url} does not hold {name}: {lacking[0].detail or 'it is not loaded'}"
        else:
            self.missing = None
        self.settled.set()


class GuestVersions:
    """The guest of a controller's engines. `wake` starts a round, `refresh` has requests see what engines hold."""

    def __init__(self, wake: Callable[[], None], refresh: Callable[[], Awaitable[None]], max_loras: int) -> None:
        self._wake = wake
        self._refresh = refresh
        self._max_loras = max_loras
        self._turn = asyncio.Lock()
        self.current: Guest | None = None

    @contextlib.asynccontextmanager
    async def hold(self, version: VersionView) -> AsyncIterator[Guest]:
        """Within: engines hold the version, or `missing` says why not. They always hold the base."""
        guest = Guest(version)
        if version.number == 0:
            yield guest
            return
        async with self._turn:
            self.current = guest
            try:
                self._wake()
                await guest.settled.wait()
                await self._refresh()
                yield guest
            finally:
                self.current = None
                self._wake()

    def added(self, kept: Sequence[VersionView]) -> list[VersionView]:
        """Return what engines should hold: the kept versions, and the guest if a slot is left."""
        guest = self.current
        if guest is None or guest.version.path is None or len(kept) >= self._max_loras:
            return list(kept)
        return [*kept, *([guest.version] if guest.version.id not in {one.id for one in kept} else [])]

    def has_room(self, held: Sequence[VersionView]) -> bool:
        """Return whether another version may be loaded beside those that engines should hold (`added`)."""
        return self.current is None or len(held) < self._max_loras
