"""What the tests of whole campaigns share: a ring around a store, the user's folder, and what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores import Stores
from tests.trainer.ring import Ring, Script, Told, write_user_folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def user(tmp_path: Path) -> dict[str, Any]:
    return write_user_folder(tmp_path / "user")


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
async def ring(data: Path, script: Script, stores: Stores) -> AsyncIterator[Ring]:
    with stores.made(data) as settings:
        async with Ring.running(data, script, settings) as running:
            yield running


@pytest.fixture
def told() -> Told:
    return Told()
