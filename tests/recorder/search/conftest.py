"""Runs that say something, recorded and indexed."""

from __future__ import annotations

import pytest

from recorder.search.asking import runs_saying
from recorder.search.filling import fill
from recorder.store.database import Store
from tests.recorder.talk import PROJECT


class Index:
    """The index over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def fill(self) -> int:
        """Until nothing waits; how many calls that were."""
        total = 0
        while done := await fill(self._store, PROJECT):
            total += done
        return total

    async def saying(self, said: str, before: str | None = None, limit: int = 50) -> list[str]:
        """The runs that say it."""
        return await runs_saying(self._store, PROJECT, said, before=before, limit=limit)


@pytest.fixture
def index(store: Store) -> Index:
    return Index(store)
