"""A store with recorded runs for every test of a step that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stores import Stores
from tests.trainer.world import World


@pytest.fixture
async def world(tmp_path: Path, tiny_base: Path, stores: Stores) -> AsyncIterator[World]:
    data = tmp_path / "data"
    with stores.made(data) as settings:
        async with World.opened(data, tiny_base, settings) as opened:
            yield opened
