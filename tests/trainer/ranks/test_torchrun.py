"""Under torchrun the same command runs on every rank: the first one trains, the others compute what it sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from examples.running.programs import free_ports
from tests.trainer.ranks.groups import ONE_RANK, one_step
from tests.trainer.training_child import SETTINGS
from trainer.errors import TrainerError
from trainer.ranks.group import RankGroup, Ranks
from trainer.ranks.launch import Launcher, RankPlace, join_group, outside_torchrun, rank_count, torchrun_place
from trainer.runtime.rank_program import is_other_rank, require_one_alias, require_undivided_gpus

ADDRESS = {"MASTER_ADDR": "node-0"}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def test_torchruns_variables_give_a_process_its_place() -> None:
    assert torchrun_place({**TORCHRUN, "RANK": "1", "LOCAL_RANK": "1"}) == RankPlace(1, 2, 1, 2)
    assert torchrun_place({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", **ADDRESS}) == (
        RankPlace(9, 16, 1, 8)
    )


@pytest.mark.parametrize("env", [{}, {**TORCHRUN, "WORLD_SIZE": "1"}, {"RANK": "0", "WORLD_SIZE": "2"}])
def test_without_torchrun_the_settings_decide(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert torchrun_place(env) is None
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    assert not is_other_rank()
    assert rank_count(SETTINGS.model_copy(update={"processes": 3})) == 3


def test_several_processes_train_one_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = [type("Alias", (), {"name": name})() for name in ("one", "two")]
    require_one_alias(SETTINGS, aliases)
    several = SETTINGS.model_copy(update={"processes": 2})
    require_one_alias(several, aliases[:1])
    with pytest.raises(TrainerError, match=r"2 processes train one alias.*2 \(one, two\).*--alias"):
        require_one_alias(several, aliases)


def test_an_engine_pauses_for_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under torchrun too, where the settings name one process."""
    require_undivided_gpus(SETTINGS, "sleep")
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    require_undivided_gpus(SETTINGS, "split")
    with pytest.raises(TrainerError, match=r'2 processes train together, and engine.share is "sleep"'):
        require_undivided_gpus(SETTINGS, "sleep")


def test_a_program_that_is_no_rank_gets_none_of_torchruns_variables() -> None:
    given = {**TORCHRUN, "TORCHELASTIC_RUN_ID": "1", "HOME": "/root"}
    assert outside_torchrun(given) == {"HOME": "/root"}


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(TrainerError, match=r"2 processes train on this machine, and torch sees 1 GPUs"):
        join_group(RankPlace(1, 2, 1, 2, "/nowhere"), SETTINGS.model_copy(update={"device": "cuda"}))


def disconnect(ranks: Ranks) -> None:
    """Close this process's connections, as its end does."""
    assert isinstance(ranks, RankGroup)
    for group in (ranks._jobs, ranks._control, None):
        dist.destroy_process_group(group)
    vars(ranks).clear()


@pytest.mark.slow
@pytest.mark.long
def test_hone_learn_on_another_rank_computes_the_firsts_steps_and_ends_with_it(
    tiny_base: Path, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens no store and waits for no alias: its data folder does not exist."""
    env = {**TORCHRUN, "MASTER_PORT": str(free_ports(1)[0]), "GLOO_SOCKET_IFNAME": "lo"}
    other = subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "learn", "--data", str(tmp_path / "none")],
        env={**os.environ, **env, "RANK": "1", "LOCAL_RANK": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        found = []
        for name in ("first", "again"):  # a learner opens its trainer again after a campaign
            launcher = Launcher(SETTINGS.model_copy(update={"rank_timeout_s": 120.0}))
            ranks = launcher.join()
            assert ranks.count == 2
            found.append(one_step(tiny_base, tmp_path / name, ranks))
            launcher.leave()
        disconnect(ranks)
    except BaseException:
        other.kill()
        raise
    finally:
        _, errors = other.communicate(timeout=60)
    expected = one_step(tiny_base, tmp_path / "one", ONE_RANK)
    for one in found:
        assert one == pytest.approx(expected, abs=1e-6)
    assert other.returncode == 0, errors
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)  # four processes import torch, one after the other where cores are busy
def test_torchrun_itself_starts_a_trainer_of_two_processes(tiny_base: Path, tmp_path: Path) -> None:
    program = ["-m", "tests.trainer.ranks.torchrun_program", str(tiny_base), str(tmp_path)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found.pop("processes") == 2
    assert found == pytest.approx(one_step(tiny_base, tmp_path / "one", ONE_RANK), abs=1e-6)
