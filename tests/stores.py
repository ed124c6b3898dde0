"""New stores for tests: each migrated, empty, and a test's own; a SQLite file or a database of a PostgreSQL server.

Owns: making one quickly (a copy of one that was migrated), and taking it away. Which kind is made says pytest's option
`--store`, and a test has it from the fixture `stores`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from recorder.settings import RecorderSettings
from recorder.store import database
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.postgres import Postgres
from tests.statements import share_statements

_TEMPLATE: Final = "migrated"
share_statements(database)


class Stores(Protocol):
    """Where a test has its stores from."""

    def made(self, folder: Path) -> AbstractContextManager[RecorderSettings]:
        """A new store of the data folder `folder`: the settings under which it is opened. The folder is made."""

    def unmade(self, data: Path) -> AbstractContextManager[RecorderSettings]:
        """The settings of a store that the first program to start on the data folder makes: no table is there.

        When left: no other kind of store was made in the folder.
        """


class SqliteStores:
    """Files, each in its data folder."""

    def __init__(self, folder: Path) -> None:
        _to_the_end(lambda: _migrate(folder, RecorderSettings()))
        self.file = folder / "hone.db"

    @contextmanager
    def made(self, folder: Path) -> Iterator[RecorderSettings]:
        """A new file."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(self.file, folder / "hone.db")
        yield RecorderSettings()

    @contextmanager
    def unmade(self, data: Path) -> Iterator[RecorderSettings]:
        """No file yet."""
        yield RecorderSettings()
        assert (data / "hone.db").exists(), f"what ran on {data} recorded elsewhere"


class PostgresStores:
    """Databases of one server."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        from recorder.store import postgres  # asyncpg takes a while to import

        share_statements(postgres)
        self._server = server
        self._numbers = count(1)
        server.create(_TEMPLATE)
        _to_the_end(lambda: _migrate(folder, RecorderSettings(url=server.url(_TEMPLATE))))

    @contextmanager
    def made(self, folder: Path) -> Iterator[RecorderSettings]:
        """A new database; dropped behind the test."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"test_{next(self._numbers)}"
        self._server.create(name, _TEMPLATE)
        try:
            yield RecorderSettings(url=self._server.url(name))
        finally:
            self._server.drop(name)

    @contextmanager
    def unmade(self, data: Path) -> Iterator[RecorderSettings]:
        """A database without tables; dropped behind the test."""
        name = f"test_{next(self._numbers)}"
        self._server.create(name)
        try:
            yield RecorderSettings(url=self._server.url(name))
            assert not (data / "hone.db").exists(), f"what ran on {data} recorded on SQLite"
        finally:
            self._server.drop(name)


@asynccontextmanager
async def opened(stores: Stores, folder: Path) -> AsyncIterator[Store]:
    """A new store, open until left."""
    with stores.made(folder) as settings:
        store = await open_store(folder, settings, migrate=False)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def on_its_own_server(folder: Path) -> AsyncIterator[tuple[Postgres, Store]]:
    """A store on a PostgreSQL of the test's own, in its database `hone`: one that may be taken away under programs."""
    server = Postgres(synchronous_commit="on")  # or a crash may take what it had confirmed
    try:
        server.create("hone")
        store = await open_store(folder, RecorderSettings(url=server.url("hone")), migrate=True)
        yield server, store
        await store.close()
    finally:
        server.stop()


async def take_away(server: Postgres, how: str) -> None:
    """`cut`: its connections end. `fast`, `immediate`: it is stopped so, and started again."""
    if how == "cut":
        await asyncio.to_thread(server.cut, "hone")
    else:
        await asyncio.to_thread(server.halt, how)
        await asyncio.to_thread(server.start)


def stored_in(recording: RecorderSettings) -> dict[str, str]:
    """The variables by which a program opens this store."""
    return {} if recording.url is None else {"HONE_RECORDER__URL": recording.url}


def reached(store: Store) -> dict[str, str]:
    """The same of a store that is open."""
    return {} if store.is_sqlite else {"HONE_RECORDER__URL": store.url.render_as_string(hide_password=False)}


async def _migrate(folder: Path, settings: RecorderSettings) -> None:
    await (await open_store(folder, settings, migrate=True)).close()


def _to_the_end(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a thread of its own: the first test that asks may have an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work())).result()
