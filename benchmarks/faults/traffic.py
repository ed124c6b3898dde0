"""Clients that ask on, whatever fails, and keep every answer whose end they saw.

A client holds conversations of three turns at an address of its own, every other answer streamed. A turn that fails is
sent again, as client libraries do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

ALIAS: Final = "helpdesk"
TURNS: Final = 3
_AGAIN_S: Final = 0.05
_TURN_S: Final = 60.0  # time limit of an answer


@dataclass(frozen=True, slots=True)
class HeardAnswer:
    """An answer whose end a client saw. `trajectory`: its address; `at`: monotonic seconds."""

    call_id: str
    trajectory: str
    turn: int
    text: str
    at: float


class WrongError(Exception):
    """An answer that is neither what was asked for nor an error in OpenAI's format."""


class AnsweredError(Exception):
    """An error in OpenAI's format; the text is its kind."""


@dataclass
class Traffic:
    """What all clients heard. `failed`: by kind; `wrong`: answers in no known format, of which there should be none."""

    url: str
    heard: list[HeardAnswer] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def run(self, clients: int) -> None:
        """Ask until `end`; conversations that began then go on to their last turn."""
        async with _session() as http:
            await asyncio.gather(*(self._client(http) for _ in range(clients)))

    async def converse(self, name: str, turns: int = TURNS) -> None:
        """Hold one conversation, or its first turns, at the address of this name."""
        async with _session() as http:
            await self._converse(http, name, turns)

    def end(self) -> None:
        """Let the clients end."""
        self._over.set()

    async def _client(self, http: aiohttp.ClientSession) -> None:
        while not self._over.is_set():
            await self._converse(http, f"conversation-{next(self._numbers)}")

    async def _converse(self, http: aiohttp.ClientSession, name: str, turns: int = TURNS) -> None:
        messages = [{"role": "user", "content": f"Where is the order of {name}?"}]
        for turn in range(turns):
            answer = await self._until_answered(http, name, turn, messages)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"And {turn}?"}]

    async def _until_answered(
        self, http: aiohttp.ClientSession, name: str, turn: int, messages: list[dict[str, str]]
    ) -> str:
        for retries in itertools.count():
            try:
                call_id, text = await self._ask(http, name, turn, messages, retries)
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                self.failed["cut" if not isinstance(e, TimeoutError) else "too late"] += 1
            except WrongError as e:
                self.wrong.append(str(e))
            except AnsweredError as e:
                self.failed[str(e)] += 1
            else:
                self.heard.append(HeardAnswer(call_id, name, turn, text, time.monotonic()))
                return text
            await asyncio.sleep(_AGAIN_S)
        raise AssertionError("a count has no end")

    async def _ask(
        self, http: aiohttp.ClientSession, name: str, turn: int, messages: list[dict[str, str]], retries: int
    ) -> tuple[str, str]:
        """Return an answer's call id and text."""
        body = {"model": ALIAS, "messages": messages, "stream": turn % 2 == 0}
        headers = {"x-stainless-retry-count": str(retries)} if retries else {}  # as OpenAI's and Anthropic's clients
        if turn == TURNS - 1:
            headers["x-hone-done"] = "true"
        address = f"{self.url}/t/{name}/v1/chat/completions"
        async with http.post(address, json=body, headers=headers) as answer:
            if answer.status != 200:
                raise AnsweredError(f"status {answer.status} {_error_of(await answer.read())}")
            read = await answer.read()
            text = _streamed(read) if body["stream"] else _plain(read)
            return answer.headers["x-hone-call"], text


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_TURN_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


def _error_of(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return f"{error['type']}: {error['message']}"[:80]
    except (ValueError, KeyError, TypeError) as e:
        raise WrongError(f"an error in no known format: {body[:200]!r}") from e


def _plain(body: bytes) -> str:
    try:
        return str(json.loads(body)["choices"][0]["message"]["content"])
    except (ValueError, KeyError, TypeError, IndexError) as e:
        raise WrongError(f"an answer in no known format: {body[:200]!r}") from e


def _streamed(body: bytes) -> str:
    events = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise AnsweredError("a stream that ends with an error" if events and b'"error"' in events[-1] else _cut(events))
    try:
        return "".join(_delta(json.loads(event)) for event in events[:-1])
    except (ValueError, KeyError, TypeError) as e:
        raise WrongError(f"an event in no known format: {body[:200]!r}") from e


def _cut(events: list[bytes]) -> str:
    raise WrongError(f"a stream that ends in order without [DONE], after {len(events)} events")


def _delta(event: dict[str, Any]) -> str:
    if "error" in event:
        raise AnsweredError("a stream that ends with an error")
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
