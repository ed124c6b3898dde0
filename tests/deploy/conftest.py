"""A place without settings from outside, for tests that read the committed ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No `HONE_…` variable from outside, and an empty working directory."""
    for name in list(os.environ):
        if name.upper().startswith("HONE_"):
            monkeypatch.delenv(name)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
