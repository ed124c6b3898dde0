"""A new store for programs that share it: SQLite, or what `--store` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.settings import RecorderSettings
from tests.stores import Stores


@pytest.fixture
def recording(stores: Stores, tmp_path: Path) -> Iterator[RecorderSettings]:
    """The settings under which `tmp_path / "data"` is opened."""
    with stores.unmade(tmp_path / "data") as settings:
        yield settings
