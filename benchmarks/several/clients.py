"""Clients of two proxies: groups of four trajectories, whose turns reach one proxy after the other."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

ALIASES: Final = ("helpdesk", "sales")
MEMBERS: Final = 4  # of a group
TURNS: Final = 2
_TURN_S: Final = 120.0  # time limit of an answer
_AGAIN_S: Final = 0.2
_TOKENS: Final = 12


@dataclass(frozen=True, slots=True)
class HeardCall:
    """An answer whose end a client saw. `trajectory`: its group and number; `at`: monotonic seconds."""

    call_id: str
    trajectory: str
    text: str
    version: str
    at: float


@dataclass
class GroupTraffic:
    """What all clients heard. `failed`: by kind; a status below 500 is Hone's mistake, as the requests are right."""

    proxies: Sequence[str]
    heard: list[HeardCall] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def run(self, groups_at_once: int) -> None:
        """Ask until `end`; groups that began then go on to their last turn."""
        timeout = aiohttp.ClientTimeout(total=_TURN_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
            await asyncio.gather(*(self._client(http) for _ in range(groups_at_once)))

    def end(self) -> None:
        """Begin no more groups."""
        self._over.set()

    async def _client(self, http: aiohttp.ClientSession) -> None:
        while not self._over.is_set():
            number = next(self._numbers)
            name = f"group-{number}"
            self.groups.append(name)
            await asyncio.gather(
                *(self._converse(http, ALIASES[number % len(ALIASES)], name, member) for member in range(MEMBERS))
            )

    async def _converse(self, http: aiohttp.ClientSession, alias: str, group: str, member: int) -> None:
        messages = [{"role": "user", "content": f"Where is the order of {group}?"}]
        for turn in range(TURNS):
            headers = {"x-hone-group-size": str(MEMBERS)} | ({"x-hone-done": "true"} if turn == TURNS - 1 else {})
            body = {"model": alias, "messages": messages, "max_tokens": _TOKENS}
            text = await self._until_answered(http, f"/g/{group}/t/{member}", member + turn, body, headers)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And {turn}?"}]

    async def _until_answered(
        self, http: aiohttp.ClientSession, address: str, at: int, body: dict[str, Any], headers: dict[str, str]
    ) -> str:
        """Send a turn to the proxies in turn, until one answers."""
        for retries in itertools.count():
            if retries:
                await asyncio.sleep(_AGAIN_S)
                headers |= {"x-stainless-retry-count": str(retries)}
            url = f"{self.proxies[(at + retries) % len(self.proxies)]}{address}/v1/chat/completions"
            try:
                async with http.post(url, json=body, headers=headers) as answer:
                    if answer.status != 200:
                        self._note(answer.status, await answer.text())
                        continue
                    text = (await answer.json())["choices"][0]["message"]["content"]
                    named = answer.headers["x-hone-call"], answer.headers["x-hone-version"]
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                self.failed["too late" if isinstance(e, TimeoutError) else "cut"] += 1
                continue
            self.heard.append(HeardCall(named[0], address, text, named[1], time.monotonic()))
            return str(text)
        raise AssertionError("a count has no end")

    def _note(self, status: int, text: str) -> None:
        self.failed[f"status {status}"] += 1
        if status < 500 and len(self.refused) < 20:
            self.refused.append(f"{status} {text[:200]}")
