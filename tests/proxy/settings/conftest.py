"""No settings but a test's own: no `HONE_…` variable from outside, and an empty working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith("HONE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
