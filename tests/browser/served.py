"""Stores of tests in the browser, each behind a proxy on a port of its own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy, serving


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[Proxy]:
    """A proxy before the store of a data folder, which is made where there is none."""
    store = await open_store(data, RecorderSettings(), migrate=True)
    try:
        async with FakeEngine() as engine, serving(store, engine) as running:
            yield running
    finally:
        await store.close()


def copied(data: Path, to: Path) -> Path:
    """Another store with the same in it."""
    to.mkdir(mode=0o700)
    for name in ("hone.db", "hone.db-wal"):
        if (data / name).exists():
            shutil.copy(data / name, to / name)
    return to
