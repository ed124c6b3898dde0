"""The context lengths of engines, in tokens: asked for, and cached.

Refuses: what a client is told about them (`proxy.responses_api`, `proxy.serving.passthrough`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import orjson

from proxy.engine.client import Client
from proxy.errors import EngineError

BELIEVED_S = 60.0  # cache time: a restarted engine may serve another length
TIMEOUT_S = 2.0  # no call is delayed for longer: its engine may be busy, and the length is optional


class ContextLengths:
    """What engines say of themselves. One per process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[int | None, float]] = {}

    async def of(self, url: str, key: str | None) -> int | None:
        """Return the context length of an engine; None if it is unknown. Cached, so mostly without I/O."""
        length, asked_at = self._known.get(url, (None, float("-inf")))
        if time.monotonic() - asked_at < BELIEVED_S:
            return length
        length = await self._ask(url, key)
        self._known[url] = (length, time.monotonic())
        return length

    async def least(self, urls: Iterable[str], key: str | None) -> int | None:
        """Return the least length of several engines, any of which may answer; None if one is unknown, or none."""
        lengths = await asyncio.gather(*(self.of(url, key) for url in urls))
        return min((length for length in lengths if length is not None), default=None) if all(lengths) else None

    async def _ask(self, url: str, key: str | None) -> int | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply = await self._client.send(url, "/v1/models", key=key, method="GET")
                async with reply:
                    cards = orjson.loads(await reply.body())["data"]
            lengths = [card.get("max_model_len") for card in cards]
            return min((length for length in lengths if isinstance(length, int) and length > 0), default=None)
        except (TimeoutError, EngineError, ValueError, KeyError, TypeError, AttributeError):
            return None  # a call itself will report the fault
