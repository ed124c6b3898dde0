"""How long a prompt and its answer may be together, by engine: what an answer's `max_output_tokens` is reckoned from.

Owns: asking each engine once in a while. Refuses: failing a call over it.
"""

from __future__ import annotations

import asyncio
import time

import orjson

from proxy.engine.client import Client
from proxy.errors import EngineError
from proxy.versions.in_service import Route

BELIEVED_S = 60.0  # an engine that was started anew may serve another length
TIMEOUT_S = 2.0  # no call is held up for longer: its engine may be busy, and the length is told where it is known


class ContextLengths:
    """The context lengths of engines, in tokens. One a process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[int | None, float]] = {}

    async def of(self, route: Route) -> int | None:
        """The context length of the engine that a call goes to; None where it does not say. Mostly without I/O."""
        length, asked_at = self._known.get(route.replica_url, (None, float("-inf")))
        if time.monotonic() - asked_at < BELIEVED_S:
            return length
        length = await self._ask(route)
        self._known[route.replica_url] = (length, time.monotonic())
        return length

    async def _ask(self, route: Route) -> int | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply = await self._client.send(route.replica_url, "/v1/models", key=route.engine_key, method="GET")
                async with reply:
                    cards = orjson.loads(await reply.body())["data"]
            lengths = [card.get("max_model_len") for card in cards]
            return min((length for length in lengths if isinstance(length, int) and length > 0), default=None)
        except (TimeoutError, EngineError, ValueError, KeyError, TypeError, AttributeError):
            return None  # the call itself will tell what is wrong
