"""One browser, one empty and one rich store with a proxy before each, for all tests of a process that ask.

They share one event loop, the session's: a proxy, its engine and the browser live from test to test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from scripts import chromium
from tests.browser.rich import Rich, make
from tests.browser.served import copied, served
from tests.browser.visiting import Visitor, visiting
from tests.proxy.running import Proxy


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await chromium.start(playwright)
        yield started
        await started.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rich(tmp_path_factory: pytest.TempPathFactory) -> Rich:
    """What lies in the rich store. Nothing is changed there: a test that changes something takes `own`."""
    return await make(tmp_path_factory.mktemp("rich") / "data")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def full(rich: Rich) -> AsyncIterator[Proxy]:
    """A proxy before the rich store, to read."""
    async with served(rich.data) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def empty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """A proxy that was never asked anything."""
    async with served(tmp_path_factory.mktemp("empty") / "data") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def own(rich: Rich, tmp_path: Path) -> AsyncIterator[Proxy]:
    """A proxy before a copy of the rich store, which is the test's own."""
    async with served(copied(rich.data, tmp_path / "data")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def reader(browser: Browser, full: Proxy) -> AsyncIterator[Visitor]:
    """Somebody who looks at the rich store."""
    async with visiting(browser, full.url) as visitor:
        yield visitor


@pytest_asyncio.fixture(loop_scope="session")
async def editor(browser: Browser, own: Proxy) -> AsyncIterator[Visitor]:
    """Somebody who changes what is the test's own."""
    async with visiting(browser, own.url) as visitor:
        yield visitor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def full_tab(browser: Browser, full: Proxy) -> AsyncIterator[Visitor]:
    """A tab before the rich store that tests use one after another, each within `watched()`."""
    async with visiting(browser, full.url) as visitor:
        yield visitor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def empty_tab(browser: Browser, empty: Proxy) -> AsyncIterator[Visitor]:
    """The same before the empty store."""
    async with visiting(browser, empty.url) as visitor:
        yield visitor


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unscripted_tab(browser: Browser, full: Proxy) -> AsyncIterator[Visitor]:
    """A tab before the rich store that runs no scripts."""
    async with visiting(browser, full.url, java_script_enabled=False) as visitor:
        yield visitor
