"""A proxy before an engine that says what a test wants, for tests of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy, serving


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(context_length=100_000) as made:
        yield made


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    async with serving(store, engine) as running:
        yield running
