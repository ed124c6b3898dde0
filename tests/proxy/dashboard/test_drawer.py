"""The process that draws: started when needed, ended when idle, when it hangs and with the proxy; pictures are kept."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from proxy.dashboard.chart_drawer import ChartDrawer, ChartFailed, DrawLimits
from recorder.stats.charts import Chart, Series, draw_svg
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # processes

CHART = Chart("Mean reward", ("1", "2"), (Series("Mean reward", (0.25, None)),))
HANGS = (sys.executable, "-c", "import time; time.sleep(600)")
ENDS = (sys.executable, "-c", "input()")


def children() -> list[psutil.Process]:
    return psutil.Process().children()


@pytest.fixture
async def drawer() -> AsyncIterator[ChartDrawer]:
    made = ChartDrawer()
    yield made
    await made.close()


async def test_a_chart_is_drawn_once_in_a_process_that_ends_with_the_drawer(drawer: ChartDrawer) -> None:
    before = children()
    light, same, dark = await asyncio.gather(*(drawer.svg(CHART, dark=dark) for dark in (False, False, True)))
    assert light == draw_svg(CHART, dark=False).encode()
    assert same is light
    assert dark == draw_svg(CHART, dark=True).encode()
    [process] = [one for one in children() if one not in before]
    assert await drawer.svg(CHART, dark=False) is light
    await drawer.close()
    assert not process.is_running()


async def test_an_idle_process_ends_and_the_next_chart_has_a_new_one() -> None:
    drawer = ChartDrawer(DrawLimits(idle_s=0))
    before = children()
    await drawer.svg(CHART, dark=False)
    await until(lambda: children() == before or None)
    assert (await drawer.svg(CHART, dark=True)).rstrip().endswith(b"</svg>")
    await drawer.close()


async def test_a_process_that_was_killed_is_started_again(drawer: ChartDrawer) -> None:
    before = children()
    await drawer.svg(CHART, dark=False)
    [process] = [one for one in children() if one not in before]
    process.kill()
    await asyncio.to_thread(process.wait)
    with contextlib.suppress(ChartFailed):  # where its end was not heard of yet
        await drawer.svg(CHART, dark=True)
    assert await drawer.svg(CHART, dark=True)


async def test_a_process_that_hangs_is_killed() -> None:
    drawer, before = ChartDrawer(DrawLimits(draws_s=0.2), HANGS), children()
    with pytest.raises(ChartFailed, match="the proxy's log"):
        await drawer.svg(CHART, dark=False)
    assert children() == before


async def test_nobody_waits_longer_than_the_bound_and_closing_ends_what_is_drawn() -> None:
    drawer, before = ChartDrawer(DrawLimits(waits_s=0.2), HANGS), children()
    with pytest.raises(ChartFailed, match=r"within 0\.2 s"):
        await drawer.svg(CHART, dark=False)
    await drawer.close()
    assert children() == before


async def test_a_process_that_ends_in_the_middle_is_no_picture() -> None:
    drawer = ChartDrawer(argv=ENDS)
    with pytest.raises(ChartFailed):
        await drawer.svg(CHART, dark=False)
    await drawer.close()
