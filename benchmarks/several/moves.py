"""How soon an alias moves on every proxy, from the moment when the store says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx

from benchmarks.several.clients import ALIASES
from recorder.registry import aliases, versions
from recorder.store.database import Project, Store

PROJECT: Final = "default"
_LOOKS_S: Final = 0.05
_ANSWER_S: Final = 5.0


@dataclass
class Moves:
    """`took_s`: of each move on each proxy that was up all the while; `unseen`: moves during which a proxy was down."""

    store: Store
    proxies: Sequence[str]
    took_s: list[float] = field(default_factory=list)
    unseen: int = 0
    _moved: dict[str, tuple[int, float]] = field(default_factory=dict)  # alias → number, when the store had it
    _waiting: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)  # (alias, proxy) → as above

    async def watch(self, over: asyncio.Event) -> None:
        """Watch until it is over."""
        async with httpx.AsyncClient(timeout=_ANSWER_S) as http:
            await asyncio.gather(self._watch_store(over), *(self._watch_proxy(http, at, over) for at in self.proxies))

    async def _watch_store(self, over: asyncio.Event) -> None:
        while not over.is_set():
            numbers = await self._live()
            for alias, number in numbers.items():
                if alias in self._moved and number > self._moved[alias][0]:
                    for at in self.proxies:
                        self._waiting[alias, at] = (number, time.monotonic())
                if alias not in self._moved or number != self._moved[alias][0]:
                    self._moved[alias] = (number, time.monotonic())
            await asyncio.sleep(_LOOKS_S)

    async def _live(self) -> dict[str, int]:
        project, found = Project(self.store, PROJECT), dict[str, int]()
        for alias in await aliases.get_aliases(project):
            if alias.live_version_id is not None:
                found[alias.name] = (await versions.get_version(self.store, alias.live_version_id)).number
        return found

    async def _watch_proxy(self, http: httpx.AsyncClient, at: str, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                served = served_numbers((await http.get(f"{at}/v1/models")).json())
            except (httpx.HTTPError, ValueError, KeyError):  # it was killed: what it missed meanwhile is no move
                for alias in ALIASES:
                    self.unseen += self._waiting.pop((alias, at), None) is not None
            else:
                self._note(at, served)
            await asyncio.sleep(_LOOKS_S)

    def _note(self, at: str, served: Mapping[str, int]) -> None:
        for alias, number in served.items():
            waiting = self._waiting.get((alias, at))
            if waiting is not None and number >= waiting[0]:
                self.took_s.append(time.monotonic() - waiting[1])
                del self._waiting[alias, at]


def served_numbers(models: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, int]:
    """Return the number of the version that each alias has, by a proxy's list of models."""
    cards = {card["id"]: card["root"] for card in models["data"] if card["id"] in ALIASES}
    return {alias: int(root.rpartition("@")[2]) for alias, root in cards.items() if "@" in root}
