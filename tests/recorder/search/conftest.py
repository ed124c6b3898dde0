"""Runs that say something, recorded and indexed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.search.indexer import index_calls
from recorder.search.matches import find_trajectories
from recorder.store.database import Project, Store
from recorder.store.write_backends import WriteBackend, choose_backend
from tests.recorder.talk import PROJECT


class Index:
    """The index over one store."""

    def __init__(self, store: Store, backend: WriteBackend) -> None:
        self._store = store
        self._backend = backend

    async def step(self) -> int:
        """One step of filling."""
        return await index_calls(Project(self._store, PROJECT), self._backend)

    async def fill(self) -> int:
        """Until nothing waits; how many calls that were."""
        total = 0
        while done := await self.step():
            total += done
        return total

    async def saying(self, said: str, before: str | None = None, limit: int = 50) -> list[str]:
        """The runs that say it."""
        return await find_trajectories(Project(self._store, PROJECT), said, before=before, limit=limit)


@pytest.fixture
async def index(store: Store) -> AsyncIterator[Index]:
    backend = choose_backend(store, "process")
    await backend.start()
    yield Index(store, backend)
    await backend.stop()
