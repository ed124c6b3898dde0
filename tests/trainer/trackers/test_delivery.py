"""A tracker that is missing, fails, hangs or is killed: told once, and nothing else of a campaign notices."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.trainer.trackers import scripted
from trainer.track_settings import TrackSettings
from trainer.trackers import delivery
from trainer.trackers.delivery import is_installed, track_events


async def test_nothing_is_started_where_no_tracker_is_named(tmp_path: Path) -> None:
    heard = await scripted.send(TrackSettings(), tmp_path, scripted.campaign())
    assert heard.said == []
    assert list(tmp_path.iterdir()) == []


async def test_a_tracker_that_is_not_installed_is_told_of_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "find_spec", lambda name: None)
    heard = scripted.Heard()
    async with track_events(TrackSettings(wandb_project="p"), scripted.run_of(tmp_path), heard) as tracking:
        (told,) = heard.said
        assert "track.wandb_project is set" in told
        assert "hone-proxy[wandb]" in told
        tracking.tell(scripted.step(1))
    assert heard.said == [told]


def test_a_folder_of_a_librarys_name_is_not_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nowhere_else").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert is_installed("tensorboard")
    assert not is_installed("nowhere_else")  # type: ignore[arg-type]  # no tracker has such a name


@pytest.mark.slow
async def test_one_that_fails_is_told_of_once_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    settings = TrackSettings(tensorboard=tmp_path / "file", wandb_project="p", wandb_mode="offline")
    (told,) = (await scripted.send(settings, tmp_path, scripted.campaign() * 3)).said
    assert told.startswith("tensorboard is sent nothing more: ")
    assert list((tmp_path / "tracking").glob("wandb/*/*.wandb"))


@pytest.mark.slow
async def test_what_a_tracker_missed_is_sent_when_the_campaign_is_gone_on_with(tmp_path: Path) -> None:
    settings, runs = TrackSettings(tensorboard=tmp_path / "runs"), tmp_path / "runs"
    runs.write_text("no folder")
    await scripted.send(settings, tmp_path, scripted.campaign())
    runs.unlink()
    heard = await scripted.send(settings, tmp_path, [], before=scripted.campaign())
    assert heard.said == []
    (file,) = runs.glob("*/*")
    assert b"train/loss" in file.read_bytes()


@pytest.mark.slow
async def test_one_that_hangs_holds_neither_a_step_nor_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = TrackSettings(mlflow=f"http://someone:{scripted.SECRET}@127.0.0.1:{server.getsockname()[1]}")
        heard = scripted.Heard()
        async with track_events(settings, scripted.run_of(tmp_path), heard, end_s=0.1) as tracking:
            for event in scripted.campaign():
                tracking.tell(event)
            connection, _ = await asyncio.to_thread(server.accept)  # it is asked, and never answers
        connection.close()
    (told,) = heard.said
    assert told.startswith("mlflow is sent nothing more: it had not taken everything")
    assert scripted.SECRET not in told


KILLED = """
import asyncio, os, psutil, signal
from pathlib import Path
from tests.trainer.trackers import scripted
from trainer.track_settings import TrackSettings
from trainer.trackers.delivery import track_events

async def main(folder):
    settings = TrackSettings(wandb_project="p", wandb_mode="offline")
    async with track_events(settings, scripted.run_of(folder), scripted.Heard()) as tracking:
        for event in scripted.campaign():
            tracking.tell(event)
        while not list(folder.glob("tracking/wandb/*/*.wandb")):
            await asyncio.sleep(0.05)
        print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(__import__("sys").argv[1])))
"""


@pytest.mark.slow
def test_a_campaign_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    left = [psutil.Process(int(pid)) for pid in done.stdout.split() if psutil.pid_exists(int(pid))]
    _, alive = psutil.wait_procs(left, timeout=scripted.PATIENCE_S)
    assert done.stdout.split()
    assert alive == []
