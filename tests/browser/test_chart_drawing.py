"""Charts in the browser: their labels and values, zoom, hidden series, the view in the address, and who draws."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import pytest
from playwright.async_api import Locator, Page, Route, expect

from recorder.stats.charts import Axis, Chart, EventMark, ReferenceLine, Series
from tests.browser.visiting import NARROW, Visitor
from tests.proxy.dashboard.xss import CORPUS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

NOON: Final = 1_795_867_200  # 2026-11-28 12:00 UTC
TRAINING: Final = "/hone/training"
JSON: Final = "**/hone/v1/charts/steps?*"


async def computed(page: Page, expression: str) -> Any:
    """What an expression of the script's pure functions gives."""
    return await page.evaluate(
        f"async () => {{ const c = await import('/hone/static/charts.js'); return {expression}; }}"
    )


async def test_ticks_are_round_and_as_few_as_asked_for(reader: Visitor) -> None:
    await reader.goto("/hone/judge")  # a page without a chart
    page = reader.page
    assert await computed(page, "[[0, 1], [0, 97], [3, 4], [-2, 2]].map(([a, b]) => c.numberTicks(a, b, 4).at)") == [
        [0, 0.5, 1], [0, 50], [3, 3.5, 4], [-2, -1, 0, 1, 2],
    ]  # fmt: skip
    assert await computed(page, "c.numberTicks(0.1, 0.4, 4, 0).at") == [0.1, 0.2, 0.3, 0.4]
    assert await computed(page, "c.numberTicks(1, 3, 5, 1).at") == [1, 2, 3]
    assert await computed(page, "c.numberTicks(2, 2, 4).at") == [2]
    steps = await computed(page, "[1e-9, 0.7, 3, 99, 12345, 1e12].map((span) => span / c.niceStep(span, 4))")
    assert all(1 <= parts <= 4.001 for parts in steps)


async def test_times_are_read_in_the_machines_zone_with_the_day_where_it_changes(reader: Visitor) -> None:
    await reader.goto("/hone/judge")
    page, hour = reader.page, 3600
    night = await computed(page, f"c.timeTicks({NOON}, {NOON + 24 * hour}, 5, 0).map((t) => [t.text, t.day])")
    assert night == [["12:00", "Nov 28"], ["18:00", ""], ["00:00", "Nov 29"], ["06:00", ""], ["12:00", ""]]
    minutes = await computed(page, f"c.timeTicks({NOON - 30}, {NOON + 90}, 5, 0, 60).map((t) => t.text)")
    assert minutes == ["12:00", "12:01"]  # no finer than the points
    ahead = await computed(page, f"c.timeTicks({NOON}, {NOON + hour}, 5, {5 * hour + 1800}).map((t) => t.text)")
    assert ahead == ["17:30", "17:45", "18:00", "18:15", "18:30"]
    days = await computed(page, f"c.timeTicks({NOON}, {NOON + 30 * 24 * hour}, 5, 0).map((t) => [t.text, t.day])")
    assert days[0] == ["Dec 3", "2026"]
    assert len(days) <= 5
    assert all(not day for _, day in days[1:])
    year = await computed(page, f"c.timeTicks({NOON}, {NOON + 400 * 24 * hour}, 5, 0).length")
    assert 2 <= year <= 5
    assert await computed(page, f"c.timeText({NOON}, {hour})") == "2026-11-28 13:00"
    assert await computed(page, f"c.timeText({NOON + 5}, 0)") == "2026-11-28 12:00:05"


async def test_values_have_three_digits_and_ticks_as_many_as_tell_them_apart(reader: Visitor) -> None:
    await reader.goto("/hone/judge")
    page = reader.page
    read = await computed(page, "[0.123456, 12.5, 999.4, 1234567, -4200, null].map((v) => c.valueText(v))")
    assert read == ["0.123", "12.5", "999", "1\u202f234\u202f567", "-4\u202f200", "–"]
    assert await computed(page, "c.valueText(0.9451, true)") == "94.5 %"
    ticks = [(0, 1), (1000, 1000), (1500, 500), (2_000_000, 500_000), (0.25, 0.05), (1234.5, 0.5), (0.00002, 0.00001)]
    said = await computed(page, f"{json.dumps(ticks)}.map(([v, step]) => c.tickText(v, step))")
    assert said == ["0", "1k", "1.5k", "2.0M", "0.25", "1.2345k", "2e-5"]
    assert await computed(page, "c.tickText(0.4, 0.2, true)") == "40 %"
    assert await computed(page, "c.plainText('a\\u202eb\\nc')") == "a\\u{202e}b\\u{a}c"


async def test_the_range_of_values_has_room_and_begins_at_nought_where_bars_stand(reader: Visitor) -> None:
    await reader.goto("/hone/judge")
    page = reader.page
    assert await computed(page, "c.extent([2, 4], {share: false, bars: true})") == [0, 4.2]
    assert await computed(page, "c.extent([0.2, 0.4], {share: true, bars: false})") == [0, 1]
    assert await computed(page, "c.extent([90, 100], {share: false, bars: false})") == [89.5, 100.5]
    assert await computed(page, "c.extent([null], {share: false, bars: false})") == [0, 1]
    low, high = await computed(page, "c.extent([3, 3], {share: false, bars: false})")
    assert low < 3 < high
    ranges = "[[2, 4], [-4, 2], [-9, 20]].map((range) => c.within(range, [0, 10], 1))"
    assert await computed(page, ranges) == [[2, 4], [0, 6], None]


async def test_a_view_is_read_from_the_address_that_it_was_written_to(reader: Visitor) -> None:
    await reader.goto("/hone/judge")
    page = reader.page
    name = json.dumps("a&b=c,#é")
    hidden = f"c.writeView('', 'kl', {{range: null, hidden: [{name}]}})"
    written = f"c.writeView({hidden}, 'reward', {{range: [1, 2.5], hidden: []}})"
    assert await computed(page, f"c.readView({written}, 'kl')") == {"range": None, "hidden": ["a&b=c,#é"]}
    assert await computed(page, f"c.readView({written}, 'reward')") == {"range": [1, 2.5], "hidden": []}
    assert await computed(page, "c.writeView('#view?kl.x=1,2', 'kl', {range: null, hidden: []})") == ""
    for broken in ("#view?kl.x=2,1", "#view?kl.x=a,b", "#view?kl.x=1", "#steps"):
        assert await computed(page, f"c.readView({broken!r}, 'kl')") == {"range": None, "hidden": []}


def drawn(page: Page, name: str) -> Locator:
    return page.locator(f"hone-chart[data-name={name}]")


LINES: Final = Chart(
    "Mean reward",
    tuple(str(step) for step in range(1, 11)),
    (
        Series("mine", tuple(step / 10 for step in range(1, 11)), (0.05,) * 10, (1.0,) * 10),
        Series("other", (None, *(0.5,) * 9)),
    ),
    levels=(ReferenceLine("target", 0.9),),
    marks=(EventMark("judge changed", 4),),
    axis=Axis("step", "numbers", tuple(float(step) for step in range(1, 11))),
)


@asynccontextmanager
async def answered(page: Page, chart: Chart, status: int = 200) -> AsyncIterator[list[str]]:
    """The page's charts of steps come from a test; yields the addresses of images that were asked for."""

    async def fulfil(route: Route) -> None:
        await route.fulfill(status=status, json={name: asdict(chart) for name in ("reward", "kl")})

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if ".svg?" in request.url else None)
    await page.route(JSON, fulfil)
    try:
        yield asked
    finally:
        await page.unroute(JSON)


@pytest.mark.parametrize("path", [TRAINING, "/hone/traffic?range=30d&split=client&origin=any"])
async def test_the_browser_draws_every_chart_and_asks_for_no_image(reader: Visitor, path: str) -> None:
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    await reader.goto(path)
    charts = reader.page.locator("hone-chart")
    assert await charts.count()
    await expect(charts.locator("svg.drawing")).to_have_count(await charts.count())
    assert [one for one in asked if "/charts/" in one and ".svg" in one] == []
    data = [one for one in asked if "/hone/v1/charts/" in one]
    assert len(data) == len(set(data))  # the charts of a page come together
    for label in await charts.locator("svg.drawing").all():
        assert await label.get_attribute("aria-labelledby")


async def test_without_scripts_the_servers_image_shows(unscripted_tab: Visitor) -> None:
    page = unscripted_tab.page
    asked: list[str] = []

    async def fulfil(route: Route) -> None:  # drawing is slow: tests/proxy/dashboard/test_training.py draws each
        asked.append(route.request.url)
        await route.fulfill(content_type="image/svg+xml", body='<svg xmlns="http://www.w3.org/2000/svg"/>')

    async with unscripted_tab.watched():
        await page.route("**/hone/charts/*.svg?*", fulfil)
        await unscripted_tab.goto(TRAINING)
        images = page.locator("hone-chart img")
        await expect(images.first).to_be_visible()
        assert len(asked) == await images.count()
        assert all(["chart" in str(await image.get_attribute("alt")) for image in await images.all()])
        await page.unroute("**/hone/charts/*.svg?*")


async def test_values_are_read_by_pointer_and_by_keys(reader: Visitor) -> None:
    async with answered(reader.page, LINES):
        await reader.goto(TRAINING)
        chart = drawn(reader.page, "reward")
        values = chart.locator(".values")
        await expect(values).to_have_text("step 10 · mine 1 (95 %: 0.05 to 1) · other 0.5")
        plot = chart.locator(".plot")
        await plot.focus()
        await plot.press("Home")
        await expect(values).to_have_text("step 1 · mine 0.1 (95 %: 0.05 to 1) · other –")
        for _ in range(4):
            await plot.press("ArrowRight")
        await expect(values).to_have_text("step 5 · mine 0.5 (95 %: 0.05 to 1) · other 0.5 · judge changed")
        await chart.locator("circle.dot.s0").nth(2).hover(force=True)
        await expect(values).to_contain_text("step 3 ·")
        await expect(chart.locator("text", has_text="target")).to_be_visible()


async def test_a_zoom_and_hidden_series_are_in_the_address_and_a_link_shows_them(reader: Visitor) -> None:
    page = reader.page
    async with answered(page, LINES):
        await reader.goto(TRAINING)
        chart = drawn(page, "reward")
        dots = chart.locator("svg.drawing > circle.dot.s0")
        await expect(dots).to_have_count(10)
        await chart.scroll_into_view_if_needed()
        box = await chart.locator("svg.drawing").bounding_box()
        assert box
        await page.mouse.move(box["x"] + box["width"] * 0.28, box["y"] + 60)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + 60)
        await page.mouse.up()
        await expect(dots).to_have_count(2)  # steps 4 and 5 of ten
        await chart.get_by_role("button", name="other", exact=True).click()
        await expect(chart.locator("path.line")).to_have_count(1)
        address = page.url
        assert "#view?" in address
        await page.goto("about:blank")
        await page.goto(address)
        await expect(dots).to_have_count(2)
        await expect(chart.locator("path.line")).to_have_count(1)
        await expect(drawn(page, "kl").locator("circle.dot.s0")).to_have_count(10)
        await chart.get_by_role("button", name="zoom out").click()
        assert await dots.count() > 2
        await chart.get_by_role("button", name="show everything").click()
        await chart.get_by_role("button", name="other", exact=True).click()
        await expect(dots).to_have_count(10)
        assert "#" not in page.url


async def test_many_intervals_are_a_band_and_times_without_values_are_a_gap(reader: Visitor) -> None:
    values = tuple(None if at == 40 else at / 100 for at in range(100))
    series = Series("mine", values, tuple(v and v / 2 for v in values), tuple(v and v * 2 for v in values))
    times = tuple(float(NOON + 60 * at) for at in range(100))
    many = Chart("Many", ("",) * 100, (series,), axis=Axis("from", "times", times))
    async with answered(reader.page, many):
        await reader.goto(TRAINING)
        chart = drawn(reader.page, "reward")
        await expect(chart.locator("polygon.band")).to_have_count(1)
        await expect(chart.locator("circle.dot")).to_have_count(0)
        assert str(await chart.locator("path.line").get_attribute("d")).count("M") == 2


async def test_labels_do_not_lie_over_each_other_on_a_telephone(reader: Visitor) -> None:
    times = tuple(float(NOON + 3600 * at) for at in range(30))
    chart = Chart("Calls", ("",) * 30, (Series("calls", (1500.0,) * 30),), bars=True, axis=Axis("from", "times", times))
    await reader.page.set_viewport_size(NARROW)
    async with answered(reader.page, chart):
        await reader.goto(TRAINING)
        labels = drawn(reader.page, "reward").locator("svg.drawing > text")
        await expect(labels.first).to_be_attached()
        boxes = [box for one in await labels.all() if (box := await one.bounding_box())]
        assert len(boxes) > 5
        for number, a in enumerate(boxes):
            assert a["x"] >= 0
            assert a["x"] + a["width"] <= NARROW["width"]
            for b in boxes[number + 1 :]:
                across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
                down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
                assert across <= 0 or down <= 3, (a, b)  # lines of text share the room between them


async def test_hostile_names_are_text(reader: Visitor) -> None:
    page = reader.page
    hostile = [text for text in CORPUS if text.strip()][::8]
    for start in range(0, len(hostile), 8):
        names = hostile[start : start + 8]
        chart = Chart(
            names[0],
            (names[0], names[-1]),
            tuple(Series(name, (1.0, 2.0)) for name in names),
            levels=(ReferenceLine(names[0], 1.5),),
            marks=(EventMark(names[-1], 1),),
        )
        async with answered(page, chart):
            await reader.goto(TRAINING)
            made = drawn(page, "reward")
            await expect(made.locator(".legend button")).to_have_count(len(names))
            await made.locator(".legend button").first.click()
            await page.reload()
            await expect(made.locator(".legend button[aria-pressed=false]")).to_have_count(1)
            ran = "'__xss' in window || document.title === 'xss' || document.cookie !== ''"
            assert await page.evaluate(f"() => {ran}") is False
            assert await made.locator("script, img, iframe, a, [style], [onload], [onerror]").count() == 0


async def test_where_the_figures_do_not_come_the_chart_says_so_and_asks_again(reader: Visitor) -> None:
    page = reader.page
    reader.watch.refusals.add(404)
    async with answered(page, LINES, status=404):
        await reader.goto(TRAINING)
        chart = drawn(page, "reward")
        await expect(chart).to_contain_text("The chart could not be loaded: the answer was 404.")
    async with answered(page, LINES):
        await chart.get_by_role("button", name="Try again").click()
        await expect(chart.locator("svg.drawing")).to_be_visible()
        await expect(chart).not_to_contain_text("could not be loaded")


async def test_a_chart_without_values_says_what_it_waits_for(reader: Visitor) -> None:
    await reader.goto(TRAINING)
    await expect(reader.page.get_by_text("The first step with a drift set gives the first point.")).to_be_visible()
