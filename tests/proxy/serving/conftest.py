"""What most tests of a served call stand on: a fake engine, and the whole proxy before it on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as running:
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running
