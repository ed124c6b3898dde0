"""Where the backends read: large reads leave the event loop alone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from sqlalchemy import text

from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.statement import Statement
from recorder.store.write_backends import Executor, SqliteBackend

_ONE = Statement(text("SELECT 1"))


async def test_a_large_read_is_in_a_thread_and_any_other_at_once(tmp_path: Path) -> None:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    backend = SqliteBackend(store, "process")
    await backend.start()

    def read(ex: Executor) -> tuple[int, int]:
        return ex.all(_ONE)[0][0], threading.get_ident()

    own = threading.get_ident()
    assert await backend.read(read) == (1, own)
    both = await asyncio.gather(backend.read(read, large=True), backend.read(read, large=True))
    assert [value for value, _ in both] == [1, 1]
    assert own not in {thread for _, thread in both}
    await backend.stop()
    await store.close()


async def test_stopping_waits_for_a_large_read(tmp_path: Path) -> None:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    backend = SqliteBackend(store, "process")
    await backend.start()
    begun, goes_on = threading.Event(), threading.Event()

    def read(ex: Executor) -> int:
        begun.set()
        goes_on.wait(10)
        value: int = ex.all(_ONE)[0][0]
        return value

    reading = asyncio.ensure_future(backend.read(read, large=True))
    await asyncio.to_thread(begun.wait, 10)
    stopping = asyncio.ensure_future(backend.stop())
    await asyncio.sleep(0)
    goes_on.set()
    assert await reading == 1
    await stopping
    await store.close()
