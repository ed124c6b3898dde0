"""`hone adapters sync` on the command line."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recorder.adapters.storage import AdapterStorage
from tests.recorder.adapters.published import content, make_folder
from tests.recorder.commands.hone import Hone


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdapterStorage:
    monkeypatch.setenv("HONE_ADAPTERS__URL", str(tmp_path / "shared"))
    return AdapterStorage(str(tmp_path / "shared"))


def test_once_fetches_what_is_missing_and_needs_no_store(hone: Hone, shared: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    shared.publish(folder)
    assert hone("adapters", "sync", "--once").output == f"fetched {folder.name}\n"
    assert "is as adapters.url is" in hone("adapters", "sync", "--once").output
    shared.remove(folder.name)
    assert hone.json("adapters", "sync", "--once") == {"fetched": [], "removed": [folder.name], "failed": []}


def test_what_cannot_be_fetched_is_an_error(hone: Hone, shared: AdapterStorage, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "learner")
    shared.publish(folder)
    (tmp_path / "shared" / "versions" / folder.name / "probe.json").write_bytes(b"")
    done = hone("adapters", "sync", "--once", fails=True)
    assert "probe.json does not match its manifest" in done.output


def test_without_a_url_it_says_what_to_set(hone: Hone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HONE_ADAPTERS__URL", raising=False)
    assert "HONE_ADAPTERS__URL" in hone("adapters", "sync", fails=True).output


@pytest.mark.slow
def test_it_runs_until_it_is_stopped(shared: AdapterStorage, tmp_path: Path) -> None:
    folder, data = make_folder(tmp_path / "learner"), tmp_path / "host"
    command = [sys.executable, "-m", "proxy.cli", "adapters", "sync", "--data", str(data)]
    env = os.environ | {"HONE_ADAPTERS__SYNC_S": "0.05"}
    program = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        shared.publish(folder)
        copy = data / "adapters" / folder.name
        while not copy.exists():
            assert program.poll() is None
            time.sleep(0.05)
    finally:
        program.send_signal(signal.SIGTERM)
        _, said = program.communicate(timeout=60)
    assert program.returncode == 0
    assert content(copy) == content(folder)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert f"{folder.name} is here, verified" in said
