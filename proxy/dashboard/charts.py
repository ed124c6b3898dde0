"""Charts as images of the pages, light and dark, cached by what they show.

Owns: the cache, and drawing beside the event loop. Refuses: how a chart is drawn (`recorder.charts`), and which there
are (`proxy.dashboard.drawn`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from recorder.charts import Chart, draw
from recorder.lru import Lru

KEPT: Final = 64  # drawings

_drawn: Lru[tuple[Chart, bool], bytes] = Lru(KEPT)


async def svg(chart: Chart, *, dark: bool) -> bytes:
    """A chart as SVG; the same bytes for the same chart."""
    known = _drawn.get((chart, dark))
    if known is None:
        known = (await asyncio.to_thread(draw, chart, dark=dark)).encode()
        _drawn.put((chart, dark), known)
    return known
