"""An engine, and a folder in which workers meet."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.proxy.fake_engine import FakeEngine


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        yield engine


@pytest.fixture
def meeting() -> Iterator[Path]:
    """A short path: that of a socket may have a hundred letters, and a test's own folder has more."""
    with tempfile.TemporaryDirectory(prefix="hone-test-") as folder:
        yield Path(folder)
