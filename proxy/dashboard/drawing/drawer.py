"""The process that draws charts, as pages use it: one, with the pictures it drew kept by what they show.

Owns: starting it when the first chart is wanted, one chart at a time, ending it when it was idle, when it hangs and
when the proxy ends, and how long a picture is waited for. Refuses: drawing (`host.py` runs it), and what is shown where
there is no picture in time (`proxy.dashboard.drawn`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.dashboard.drawing.wire import LENGTH_BYTES, question
from recorder.base.lru import Lru
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.charts import Chart
from recorder.child_env import environment

KEPT: Final = 64  # pictures
MOST: Final = 64  # that are asked for at once
_ARGV: Final = (sys.executable, "-P", "-m", "proxy.dashboard.drawing.host")

log = logging.getLogger(__name__)


class NotDrawn(Exception):
    """There is no picture now. The message says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds."""

    waits_s: float = 20.0  # a page for its picture
    draws_s: float = 15.0  # one drawing, the imports of a new process included
    idle_s: float = 60.0  # the process without a chart


class Drawer:
    """Draws charts. One a process; end it with `close`."""

    def __init__(self, bounds: Bounds | None = None, argv: Sequence[str] = _ARGV) -> None:
        self._bounds = bounds or Bounds()
        self._argv = argv
        self._drawn: Lru[tuple[Chart, bool], bytes] = Lru(KEPT)
        self._drawing: dict[tuple[Chart, bool], asyncio.Task[bytes | None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._failing = RateLimitedLog(log)

    async def svg(self, chart: Chart, *, dark: bool) -> bytes:
        """A chart as SVG; the same bytes for the same chart. Raises NotDrawn.

        Who waits no longer leaves the drawing to go on: the next one who asks finds it.
        """
        drawn = self._drawn.get((chart, dark))
        if drawn is None:
            try:
                async with asyncio.timeout(self._bounds.waits_s):
                    drawn = await asyncio.shield(self._begun(chart, dark=dark))
            except TimeoutError as e:
                raise NotDrawn(f"the chart is not drawn within {self._bounds.waits_s:g} s") from e
        if drawn is None:
            raise NotDrawn("the process that draws charts failed: the proxy's log says how")
        return drawn

    async def close(self) -> None:
        """End the process, and what it draws."""
        begun = list(self._drawing.values())
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await self._leave()

    def _begun(self, chart: Chart, *, dark: bool) -> asyncio.Task[bytes | None]:
        key = (chart, dark)
        if (task := self._drawing.get(key)) is None:
            if len(self._drawing) >= MOST:
                raise NotDrawn(f"{MOST} charts are waited for already")
            task = self._drawing[key] = asyncio.create_task(self._draw(chart, dark=dark), name="draw a chart")
            task.add_done_callback(lambda _: self._drawing.pop(key))
        return task

    async def _draw(self, chart: Chart, *, dark: bool) -> bytes | None:
        """The picture, or None: the log says why."""
        async with self._one_at_a_time:
            self._stay()
            try:
                drawn = await self._asked(question(chart, dark=dark))
            except (TimeoutError, OSError, EOFError) as e:
                await self._end()
                self._failing(logging.WARNING, "a chart was not drawn, and its process is ended: %r", e)
                return None
            except BaseException:  # cut off in the middle: a late answer must not be the next chart's
                await self._end()
                raise
            self._idle = asyncio.get_running_loop().call_later(self._bounds.idle_s, self._begin_to_leave)
        self._drawn.put((chart, dark), drawn)
        return drawn

    async def _asked(self, line: bytes) -> bytes:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=PIPE, stdout=PIPE, env=environment(), start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(self._bounds.draws_s):
            process.stdin.write(line)
            await process.stdin.drain()
            length = await process.stdout.readexactly(LENGTH_BYTES)
            return await process.stdout.readexactly(int.from_bytes(length, "big"))

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _begin_to_leave(self) -> None:
        self._leaving = asyncio.create_task(self._leave(), name="end the process that draws")

    async def _leave(self) -> None:
        async with self._one_at_a_time:
            self._stay()
            await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it is gone already
            process.kill()
        await process.communicate()
