"""A proxy that answers whatever it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import WITHOUT_PAGES, serving


@pytest.fixture
async def proxy(store: Store) -> Any:
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as running:
        engine.default = Script([words("It arrives on Monday")])
        yield running
