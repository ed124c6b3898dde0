"""A real store for every test, of the kind that `--store` names, and a recorder over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.rows import Rows
from tests.recorder.talk import Talk
from tests.stores import SqliteStores, Stores, opened


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, whatever `--store` says: for tests of the file."""
    return SqliteStores(tmp_path_factory.mktemp("empty")).file


@pytest.fixture
async def store(tmp_path: Path, stores: Stores) -> AsyncIterator[Store]:
    async with opened(stores, tmp_path) as made:
        yield made


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


# The write backend is the database's own. `StoreBackend` is PostgreSQL's, where `make test` runs all of this again.
@pytest.fixture
async def recorder(store: Store) -> AsyncIterator[Recorder]:
    started = Recorder(store, RecorderSettings())
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def talk(recorder: Recorder) -> Talk:
    return Talk(recorder)
