"""A new store for programs that share it: SQLite, or what `--store` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recorder.settings import RecorderSettings


@pytest.fixture
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecorderSettings]:
    """The settings under which `tmp_path / "data"` is opened."""
    with ExitStack() as stack:
        if request.config.getoption("--store", "sqlite") == "sqlite":
            yield RecorderSettings()
        else:
            yield stack.enter_context(request.getfixturevalue("stores").made(tmp_path / "data"))
