"""Responses that run without their client: `background: true`.

Owns: which of them run in this process, and ending them before their time. Refuses: what they do
(`proxy.serving.calls`), and those that ended: the record has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from proxy.dialects.responses.dialect import ResponsesAnswer
from proxy.http.asgi import Message, Receive, Send

log = logging.getLogger(__name__)

Serve = Callable[[Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Run:
    answer: ResponsesAnswer
    hung_up: asyncio.Event
    task: asyncio.Task[None]


class Background:
    """The background responses of one process. `stop()` ends them all."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._runs

    def start(self, answer: ResponsesAnswer, serve: Serve) -> None:
        """Serve a call to a client that waits for nothing, until it is done or `cancel` hangs up."""
        hung_up = asyncio.Event()

        async def receive() -> Message:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            return

        async def run() -> None:
            try:
                await serve(receive, send)
            except Exception:  # a boundary: nobody waits for this task, and a lost one must leave a word
                log.exception("the background response %s ended by a fault in Hone", answer.head.id)
            finally:
                del self._runs[answer.head.id]

        task = asyncio.get_running_loop().create_task(run(), name=f"background {answer.head.id}")
        self._runs[answer.head.id] = _Run(answer, hung_up, task)

    async def cancel(self, response_id: str) -> bool:
        """End a response; returns when that is recorded. False: it does not run here."""
        run = self._runs.get(response_id)
        if run is None:
            return False
        run.answer.cancelled = True
        run.hung_up.set()
        await asyncio.wait([run.task])
        return True

    async def stop(self) -> None:
        """End all, as failed: nobody asked for it."""
        runs = list(self._runs.values())
        for run in runs:
            run.hung_up.set()
        if runs:
            await asyncio.wait([run.task for run in runs])
