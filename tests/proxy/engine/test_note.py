"""engine.json is believed while its writer lives, and only then."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.engine.command import ENGINE_FILE, EngineAddress, running_engine, write_engine_address
from proxy.settings.sections import EngineSettings

ENGINE = EngineSettings(base="org/model", port=8123)


def test_an_engine_is_found_while_it_is_kept_running(tmp_path: Path) -> None:
    assert running_engine(tmp_path) is None
    with write_engine_address(tmp_path, ENGINE):
        assert running_engine(tmp_path) == EngineAddress("127.0.0.1", 8123, "org/model", os.getpid())
        assert stat.S_IMODE((tmp_path / ENGINE_FILE).stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_one_whose_writer_is_gone_is_not_believed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with write_engine_address(tmp_path, ENGINE):
        path = tmp_path / ENGINE_FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": ended.pid}))
        assert running_engine(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 3}', "3", "{"])
def test_a_broken_one_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ENGINE_FILE).write_text(text)
    assert running_engine(tmp_path) is None
