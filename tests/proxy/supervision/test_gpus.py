"""`hone up` on a GPU that engine and trainer share: which GPUs each sees, and a learner that hangs with its memory."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from proxy.settings.loader import load_settings
from proxy.supervision import up
from proxy.supervision.console import choose_output
from proxy.supervision.supervisor import Program, ProgramState, Supervisor
from proxy.supervision.up import HoneUp
from recorder.queue.leases import GPU, Lease, acquire_lease, release_lease, renew_lease
from recorder.queue.training import gpu_pauses
from recorder.store.database import Project, Store
from tests.proxy.supervision.test_supervisor import gone
from tests.proxy.until import until


def hone_up(store: Store, **flags: Any) -> HoneUp:
    settings = load_settings(None, {"engine.base": "org/model", "engine.device": "cuda", **flags}).settings
    made = HoneUp(settings, config=None, flags={}, output=choose_output(Console(), as_json=True))
    made._project = Project(store, "default")
    return made


def test_engine_and_learner_see_their_own_gpus(store: Store) -> None:
    two = hone_up(store, **{"engine.gpus": [1], "trainer.gpus": [0]})
    assert two._engine().env["CUDA_VISIBLE_DEVICES"] == "1"
    assert two._learner().env["CUDA_VISIBLE_DEVICES"] == "0"
    one = hone_up(store)
    assert "CUDA_VISIBLE_DEVICES" not in {**one._engine().env, **one._learner().env}
    assert one._engine().may_start is None


def holder_of(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:trainer"


async def hold(project: Project, pid: int) -> Lease:
    lease = await acquire_lease(project, GPU, holder_of(pid), 60)
    assert lease is not None
    return lease


async def test_an_engine_starts_only_once_no_trainer_is_on_its_gpu(store: Store) -> None:
    sharing = hone_up(store, **{"engine.share": "sleep"})
    project, may_start = sharing._project, sharing._engine().may_start
    assert may_start is not None
    assert await may_start()
    lease = await hold(project, os.getpid())
    assert not await may_start()
    lease = await renew_lease(store, lease, 0)
    assert not await may_start()  # the process runs: its memory is not free
    await release_lease(store, lease)
    assert await may_start()


async def test_a_learner_that_hangs_with_the_gpu_is_killed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "HUNG_LOOK_S", 0.05)
    monkeypatch.setattr(up, "HUNG_S", 0.1)
    sharing = hone_up(store, **{"engine.share": "sleep"})
    stuck = (sys.executable, "-c", "import time; time.sleep(600)")
    learner = Supervisor(Program("learn", stuck, tmp_path / "learn.log", settle_s=0.1, backoff_s=(0.01,)))
    sharing.supervisors["learn"] = learner
    await learner.start()
    try:
        assert learner.pid is not None
        watchdog = psutil.Process(learner.pid)
        await until(lambda: len(watchdog.children()) == 1)
        [child] = watchdog.children()
        lease = await hold(sharing._project, child.pid)
        async with sharing._ending_hung_trainer():
            assert await gpu_pauses.find_hung_holder(sharing._project, 0) is None  # its lease is valid
            await renew_lease(store, lease, 0)
            await until(lambda: gone(child.pid))
            await until(lambda: learner.restarts == 1 and learner.state is ProgramState.UP)
        assert not await gpu_pauses.is_gpu_used(sharing._project)  # the controller may wake the engine
    finally:
        await learner.stop()


def test_a_learner_of_several_processes_has_their_number_and_their_gpus(tmp_path: Path) -> None:
    config = tmp_path / "hone.toml"
    engine = 'engine = {base = "org/model", device = "cuda", gpus = [2]}'
    config.write_text(f"{engine}\ntrainer = {{processes = 2, gpus = [0, 1]}}\n")
    learner = HoneUp(
        load_settings(config, {}).settings, config=config, flags={}, output=choose_output(Console(), as_json=True)
    )._learner()
    assert learner.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    given = Path(learner.argv[learner.argv.index("--config") + 1])
    assert load_settings(given, {}).settings.trainer.processes == 2
