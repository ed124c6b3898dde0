"""The command line over an empty store, in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.recorder.commands.hone import Hone


@pytest.fixture
def hone(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Hone:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    shutil.copy(empty_database, tmp_path / "data" / "hone.db")
    return Hone(tmp_path / "data")
