"""Learning from live traffic: `hone up` with judge and learner before a running engine, agents that only know a base
URL, versions that come into service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright, expect

from examples.helpdesk import agent
from examples.helpdesk.orders import read_database
from examples.helpdesk.surroundings import surroundings
from examples.live.users import Task
from scripts import chromium
from tests.browser.visiting import visiting
from tests.e2e.conftest import ROOT, Stack, wait_for
from tests.stores import Stores, stored_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ORDERS, ATTEMPTS = 3, 8


@dataclass
class Traffic:
    """Agents in production: they have a base URL, and say when a run is over."""

    url: str
    orders: list[str]

    async def wave(self, name: str, orders: int = ORDERS, attempts: int = ATTEMPTS) -> None:
        """So many orders asked about several times at once; each order's runs are one group."""
        runs = [
            Task(f"{name}-{order}-{n}", f"Where is my order {order}?", f"{self.url}/g/{name}-{order}/t/{n}/v1")
            for order in self.orders[:orders]
            for n in range(attempts)
        ]
        await asyncio.gather(*(agent.run(run) for run in runs))
        async with httpx.AsyncClient(timeout=60) as http:
            for run in runs:
                (await http.post(f"{run.base_url.removesuffix('/v1')}/hone/v1/done", json={})).raise_for_status()


@dataclass(frozen=True)
class Live:
    stack: Stack
    traffic: Traffic


@pytest.fixture(scope="module")
def live(stack: Stack, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    data = tmp_path_factory.mktemp("live")
    with (
        stores.unmade(data) as recording,
        surroundings(data) as (files, found),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HELPDESK_MCP_URL", found["HELPDESK_MCP_URL"])
        config = ROOT / "examples" / "helpdesk" / "hone.toml"
        environment = os.environ | found | stored_in(recording) | stack.engine_settings
        environment |= {"HONE_RECORDER__GROUP_WINDOW_S": "0.5", "HONE_TRAINER__MIN_GROUPS": "2"}
        command = [sys.executable, "-m", "proxy.cli", "up", "--data", str(data), "--config", str(config)]
        log = data / "up.log"
        with log.open("wb") as out:
            up = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)
        try:
            url = f"http://127.0.0.1:{found['HONE_PROXY__PORT']}"

            def ready() -> bool:
                assert up.poll() is None, log.read_text()
                return "Ready" in log.read_text()

            wait_for("hone up", ready)
            orders = [order.order_id for order in read_database(files.database).train[:ORDERS]]
            yield Live(Stack(data, config, url, "", "", recording), Traffic(url, orders))
        finally:
            up.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                up.wait(60)
            up.kill()
            up.wait()


def live_version(stack: Stack) -> str:
    [live] = [v for v in httpx.get(f"{stack.proxy_url}/hone/v1/versions").json() if v["state"] == "live"]
    return str(live["name"])


def test_traffic_is_recorded_judged_and_trained_on_and_the_next_runs_meet_the_new_version(live: Live) -> None:
    stack, traffic = live.stack, live.traffic
    asyncio.run(traffic.wave("first"))
    wait_for("a version trained on the first wave", lambda: live_version(stack) != "helpdesk@0")
    learned = live_version(stack)
    asyncio.run(traffic.wave("second", orders=1))
    calls = [c for c in stack.export() if c["purpose"] == "train"]  # the gate asks both versions on its own
    first = [c for c in calls if c["version"] == "helpdesk@0"]
    assert len({c["trajectory_id"] for c in first}) == ORDERS * ATTEMPTS
    assert all(c["reward"] is not None for c in first)
    second = [c for c in calls if c["version"] != "helpdesk@0"]
    assert {c["version"] for c in second} >= {learned}
    assert len({c["trajectory_id"] for c in second}) == ATTEMPTS


def test_a_killed_worker_comes_back_and_learning_goes_on(live: Live) -> None:
    stack, traffic = live.stack, live.traffic
    before = live_version(stack)
    for name in ("learn", "judge"):
        kill_program(stack, name)
    asyncio.run(traffic.wave("third"))
    wait_for("a version after the workers were killed", lambda: live_version(stack) != before)


def kill_program(stack: Stack, name: str) -> None:
    """End a program of `hone up` at once; the process that run.json names only watches over it."""
    watcher = stack.pid(name)
    children = Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)


@pytest.mark.browser
def test_the_list_at_home_moves_while_agents_work(live: Live) -> None:
    asyncio.run(seen_at_home(live))


async def seen_at_home(live: Live) -> None:
    """A page that was opened before the agents began shows a run of theirs, and nothing loads it again."""
    async with async_playwright() as playwright:
        browser = await chromium.start(playwright)
        async with visiting(browser, live.stack.proxy_url) as visitor:
            await visitor.goto("/hone/")
            rows = visitor.page.locator("#live-rows")
            await expect(rows).not_to_contain_text("watched-")
            await visitor.page.evaluate("() => { window.opened = true; }")
            seen = expect(rows).to_contain_text("watched-", timeout=120_000)
            await asyncio.gather(live.traffic.wave("watched", orders=1, attempts=2), seen)
            assert await visitor.page.evaluate("() => window.opened") is True
        await browser.close()


def test_nothing_of_the_traffic_failed(live: Live) -> None:
    states: dict[str, Any] = {}
    for call in live.stack.export():
        states[call["status"]] = states.get(call["status"], 0) + 1
    assert set(states) == {"complete"}
