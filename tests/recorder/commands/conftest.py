"""The command line over an empty store, in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recorder.commands.hone import Hone
from tests.stores import Stores


@pytest.fixture
def hone(tmp_path: Path, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hone]:
    monkeypatch.chdir(tmp_path)
    with stores.made(tmp_path / "data") as settings:
        if settings.url is not None:
            monkeypatch.setenv("HONE_RECORDER__URL", settings.url)
        yield Hone(tmp_path / "data", settings)
