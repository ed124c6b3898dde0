"""Draw charts in one child process, with a cache of pictures.

Owns: the cache, the bounds on waiting requests, and the time limits. Refuses: the process's life
(`recorder.processes.child_host`), drawing (`proxy.dashboard.chart_child`), and the replacement image
(`proxy.dashboard.chart_images`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.dashboard.chart_child import encode_question, picture
from recorder.base.lru import Lru
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.processes.child_host import ChildError, ChildHost, ChildSpec, Output
from recorder.stats.charts import Chart

CACHED: Final = 64  # pictures
MAX_PENDING: Final = 64  # charts
_ARGV: Final = (sys.executable, "-P", "-m", "proxy.dashboard.chart_child")

log = logging.getLogger(__name__)


class ChartFailed(Exception):
    """The chart cannot be drawn now. The message has the reason."""


@dataclass(frozen=True, slots=True)
class DrawLimits:
    """Time limits, in seconds."""

    waits_s: float = 20.0  # of a page for its picture
    draws_s: float = 15.0  # the start of a process, and each drawing
    idle_s: float = 60.0  # of the process, after which it ends


class ChartDrawer:
    """Draws charts. One a process; end it with `close`."""

    def __init__(self, bounds: DrawLimits | None = None, argv: Sequence[str] = _ARGV) -> None:
        self._bounds = bounds or DrawLimits()
        self._host = ChildHost(
            ChildSpec(argv, start_limit_s=self._bounds.draws_s, idle_s=self._bounds.idle_s, output=Output.OURS)
        )
        self._drawn: Lru[tuple[Chart, bool], bytes] = Lru(CACHED)
        self._drawing: dict[tuple[Chart, bool], asyncio.Task[bytes | None]] = {}
        self._failing = RateLimitedLog(log)

    async def svg(self, chart: Chart, *, dark: bool) -> bytes:
        """A chart as SVG; the same bytes for the same chart. Raises ChartFailed.

        A caller that gives up does not stop the drawing: the next request finds it.
        """
        drawn = self._drawn.get((chart, dark))
        if drawn is None:
            try:
                async with asyncio.timeout(self._bounds.waits_s):
                    drawn = await asyncio.shield(self._begun(chart, dark=dark))
            except TimeoutError as e:
                raise ChartFailed(f"the chart was not drawn within {self._bounds.waits_s:g} s") from e
        if drawn is None:
            raise ChartFailed("the chart process failed: see the proxy's log")
        return drawn

    async def close(self) -> None:
        """Cancel all drawings and end the process."""
        begun = list(self._drawing.values())
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await self._host.kill()

    def _begun(self, chart: Chart, *, dark: bool) -> asyncio.Task[bytes | None]:
        key = (chart, dark)
        if (task := self._drawing.get(key)) is None:
            if len(self._drawing) >= MAX_PENDING:
                raise ChartFailed(f"{MAX_PENDING} charts are pending already")
            task = self._drawing[key] = asyncio.create_task(self._draw(chart, dark=dark), name="draw a chart")
            task.add_done_callback(lambda _: self._drawing.pop(key))
        return task

    async def _draw(self, chart: Chart, *, dark: bool) -> bytes | None:
        """The picture, or None after a failure, which is logged."""
        try:
            drawn = picture(await self._host.request(encode_question(chart, dark=dark), self._bounds.draws_s))
        except (ChildError, OSError) as e:
            self._failing(logging.WARNING, "a chart could not be drawn, and its process was ended: %r", e)
            return None
        self._drawn.put((chart, dark), drawn)
        return drawn
