"""A store with recorded runs for every test of a step that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.trainer.world import World


@pytest.fixture
async def world(tmp_path: Path, tiny_base: Path) -> AsyncIterator[World]:
    async with World.opened(tmp_path / "data", tiny_base) as opened:
        yield opened
