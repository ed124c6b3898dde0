"""Calls that were answered before they were recorded, in the order in which they ended.

Owns: that order, when a call that began while the store was away is attributed, how long it is kept, and its size in
the writer's queue. Refuses: how it is attributed (its caller knows that), and writing (`recorder.capture.writer`).

A conversation's next call arrives only after the answer that it continues. So whoever attributes a call waits for
`caught_up` first, or defers the call to the end of this order: then each call finds those that it continues.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from recorder.capture.writer import Writer
from recorder.errors import RolledBack, StoreUnavailable
from recorder.messages.calls import Attribution, RecordedCall
from recorder.store.write_backends import PATIENCE_S, READ_PATIENCE_S

RETRY_S: Final = 0.25  # between two attempts to attribute a call
_NUMBER_BYTES: Final = 40  # a token id or a logprob in a list

Attribute = Callable[[], Awaitable[Attribution]]  # raises RolledBack while the store is away


@dataclass(slots=True)
class _DeferredCall:
    turn: RecordedCall  # without its attribution
    attribute: Attribute
    done: asyncio.Future[None]
    size_bytes: int
    until: float  # the event loop's time after which it is given up if the store is away


class Backlog:
    """The order. `commit` writes a call whose room in the queue is reserved, and returns when it is durable."""

    def __init__(self, writer: Writer, commit: Callable[[RecordedCall], Awaitable[None]]) -> None:
        self._writer = writer
        self._commit = commit
        self._waiting: deque[_DeferredCall | asyncio.Future[None]] = deque()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None

    async def caught_up(self) -> None:
        """Wait until every call is recorded or given up. Returns at once, without suspending, if there is none."""
        await self._empty.wait()

    def follow(self, committing: asyncio.Future[None]) -> None:
        """Add a call whose client received its answer before the end of `committing`, its commit."""
        self._add(committing)

    async def commit(self, turn: RecordedCall, attribute: Attribute) -> None:
        """Attribute and write an ended call when the store is back. Returns when it is durable.

        Raises StoreUnavailable: at once if the writer's queue is full; else after `PATIENCE_S` without the store.
        """
        loop = asyncio.get_running_loop()
        call = _DeferredCall(turn, attribute, loop.create_future(), call_bytes(turn), loop.time() + PATIENCE_S)
        self._writer.reserve(turn, call.size_bytes)
        self._add(call)
        await call.done

    async def stop(self) -> None:
        """Wait until the order is empty. Stop the writer after it."""
        await self.caught_up()

    def _add(self, waiting: _DeferredCall | asyncio.Future[None]) -> None:
        self._waiting.append(waiting)
        self._empty.clear()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._empty_it(), name="recorder-backlog")

    async def _empty_it(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if isinstance(first, asyncio.Future):
                await asyncio.wait([first])
            else:
                await self._end(first)
        self._task = None
        self._empty.set()

    async def _end(self, call: _DeferredCall) -> None:
        error: Exception | None = None
        try:
            attribution = await self._attribution(call)
        except Exception as e:  # noqa: BLE001 - the next calls must be written whatever is wrong with one
            error = self._writer.give_up(call.turn, e)
        else:
            try:
                await self._commit(replace(call.turn, attribution=attribution))
            except Exception as e:  # noqa: BLE001 - the same; the writer has counted it
                error = e
        self._writer.release(call.size_bytes)
        if call.done.done():  # its caller was cancelled
            return
        if error is None:
            call.done.set_result(None)
        else:
            call.done.set_exception(error)

    async def _attribution(self, call: _DeferredCall) -> Attribution:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(READ_PATIENCE_S):
                    return await call.attribute()
            except (RolledBack, TimeoutError) as e:
                if loop.time() > call.until:
                    raise StoreUnavailable(
                        f"it began while the store was away, and the store did not return within {PATIENCE_S:g} s: "
                        f"{str(e) or 'no answer'}"
                    ) from e
            await asyncio.sleep(RETRY_S)


def call_bytes(turn: RecordedCall) -> int:
    """Return the approximate size of a call in memory, in bytes."""
    request = turn.request
    parts = [request.messages, request.tools, request.response_format, request.rest, turn.response_meta]
    numbers = len(turn.prompt_token_ids or ())
    for choice in turn.choices:
        parts.append(choice.message)
        numbers += len(choice.token_ids or ()) + len(choice.logprobs or ())
    return sum(map(_value_bytes, parts)) + numbers * _NUMBER_BYTES


def _value_bytes(value: Any) -> int:
    total, todo = 0, [value]  # no recursion: the nesting is the client's
    while todo:
        one = todo.pop()
        total += sys.getsizeof(one)
        if isinstance(one, Mapping):
            todo.extend(one.values())
        elif isinstance(one, list | tuple):
            todo.extend(one)
    return total
