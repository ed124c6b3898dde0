"""Where a trainer's ranks come from: torchrun's environment, or processes that the first rank starts on its machine.

Owns: reading that environment, starting and ending processes, and joining them to a group. Refuses: what they compute
(`trainer.step.rank_worker`). Torch is imported when a group is joined: commands read the environment without it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainer.errors import RankLost, TrainerError
from trainer.settings import TrainerSettings

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

    from trainer.ranks.group import RankGroup

READY: Final = "ready"  # a rank's line when it has imported torch
_END_S: Final = 30.0  # for a rank to end; it frees a GPU meanwhile
WORKER: Final = "trainer.step.rank_worker"
# What torchrun sets, by which a program that it started finds the others.
_TORCHRUNS: Final = frozenset({
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
})  # fmt: skip
_INTERFACES: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One rank's place. `local_index`: its number on its machine, of `local_count` there.

    `folder`: where ranks of one machine find each other; None: by torchrun's address.
    """

    index: int
    count: int
    local_index: int
    local_count: int
    folder: str | None = None


def torchrun_place(env: Mapping[str, str] = os.environ) -> RankPlace | None:
    """This process's place by the variables that torchrun sets; None if it was not started so."""
    count = int(env.get("WORLD_SIZE") or 1)
    if count < 2 or not env.get("MASTER_ADDR") or not env.get("RANK"):
        return None
    index = int(env["RANK"])
    return RankPlace(index, count, int(env.get("LOCAL_RANK") or index), int(env.get("LOCAL_WORLD_SIZE") or count))


def outside_torchrun(env: Mapping[str, str]) -> dict[str, str]:
    """The variables without torchrun's, for a program that is no rank: an engine would take itself for one."""
    return {name: value for name, value in env.items() if name not in _TORCHRUNS and "TORCHELASTIC" not in name}


def rank_count(settings: TrainerSettings) -> int:
    """How many processes train."""
    place = torchrun_place()
    return settings.processes if place is None else place.count


@dataclass(slots=True)
class LocalRanks:
    """The other ranks, started on this machine. They end with this process, whatever ends it."""

    folder: tempfile.TemporaryDirectory[str]
    worker: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @classmethod
    def start(cls, settings: TrainerSettings, worker: str) -> LocalRanks:
        """Start `settings.processes` − 1 processes, and wait until each has imported torch. Raises `RankLost`.

        `worker`: the module that they run.
        """
        self = cls(tempfile.TemporaryDirectory(prefix="hone-ranks-"), worker)
        try:
            for index in range(1, settings.processes):
                self.processes.append(self._start(self.place(index, settings.processes), settings))
            for process in self.processes:
                self._require_ready(process)
        except BaseException:
            self.end()
            raise
        return self

    def place(self, index: int, count: int) -> RankPlace:
        """The place of one of them."""
        return RankPlace(index, count, index, count, self.folder.name)

    def end(self) -> None:
        """End them: those that do not end in time are killed."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()  # what they wait for
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.processes.clear()
        self.folder.cleanup()

    def _start(self, place: RankPlace, settings: TrainerSettings) -> subprocess.Popen[str]:
        env = {**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        given = [f"{name}={value}" for name, value in asdict(place).items()]
        return subprocess.Popen(  # noqa: S603 - this program's own module
            [sys.executable, "-m", self.worker, settings.model_dump_json(), *given],
            env=env,
            stdin=subprocess.PIPE,  # closed by the end of this process: then they end too
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the first rank, which lets the others finish a pass
        )

    def _require_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY:
            raise RankLost(f"a process of the trainer did not start (exit status {process.wait()}).")


@dataclass(slots=True)
class Launcher:
    """Joins the first rank to its group, as often as a trainer is opened."""

    settings: TrainerSettings
    worker: str = field(default_factory=lambda: WORKER)
    started: LocalRanks | None = None
    group: RankGroup | None = None

    def join(self) -> RankGroup:
        """Start the other ranks, or find torchrun's, and return the group. Blocks for seconds. Raises `RankLost`."""
        place = torchrun_place()
        if place is None:
            self.started = LocalRanks.start(self.settings, self.worker)
            place = self.started.place(0, self.settings.processes)
        try:
            self.group = join_group(place, self.settings)
            return self.group
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Let the other ranks free the base. Those that were started here end; torchrun's wait for another trainer."""
        if self.group is not None:
            with suppress(RankLost):
                self.group.leave()
            self.group = None
        if self.started is not None:
            self.started.end()
            self.started = None
            _destroy_group()


def _destroy_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        with suppress(RuntimeError):  # a lost rank's connection
            dist.destroy_process_group()


def join_group(place: RankPlace, settings: TrainerSettings) -> RankGroup:
    """Return the process group of a place. Raises `RankLost` if the others do not come."""
    import torch

    on_gpu = settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available())
    if place.folder is None:
        return _join_torchruns_group(place, settings.rank_timeout_s, on_gpu)
    with _loopback():
        return _join(place, settings.rank_timeout_s, on_gpu)


@cache  # torchrun's processes find each other once, and a learner may open several trainers one after the other
def _join_torchruns_group(place: RankPlace, timeout_s: float, on_gpu: bool) -> RankGroup:
    return _join(place, timeout_s, on_gpu)


def _join(place: RankPlace, timeout_s: float, on_gpu: bool) -> RankGroup:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    from trainer.ranks.group import RankGroup

    device, timeout = _take_card(place) if on_gpu else None, timedelta(seconds=timeout_s)
    try:
        store = _store(place, timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=PrefixStore("group", store), rank=place.index, world_size=place.count, timeout=timeout,
            device_id=device,
        )  # fmt: skip
        local = (place.local_index, place.local_count)
        return RankGroup(local=local, timeout_s=timeout_s, store=PrefixStore("notes", store))
    except RuntimeError as e:
        raise RankLost(f"the {place.count} processes of the trainer did not find each other: {e}") from e


def _store(place: RankPlace, timeout: timedelta) -> Store:
    from torch._C._distributed_c10d import FileStore
    from torch.distributed.rendezvous import rendezvous

    if place.folder is not None:
        return FileStore(str(Path(place.folder) / "store"), place.count)
    store: Store
    store, _, _ = next(rendezvous("env://", place.index, place.count, timeout=timeout))
    return store


def _take_card(place: RankPlace) -> torch.device:
    """Make a rank's own GPU the one that it computes on."""
    import torch

    cards = torch.cuda.device_count()
    if place.local_index >= cards:
        raise TrainerError(
            f"{place.local_count} processes train on this machine, and torch sees {cards} GPUs here: start one process "
            "for each GPU (trainer.processes)."
        )
    device = torch.device("cuda", place.local_index)
    torch.cuda.set_device(device)
    return device


@contextmanager
def _loopback() -> Iterator[None]:
    """Within: connections of new groups are made on the loopback interface alone."""
    name = next((one for _, one in socket.if_nameindex() if one in ("lo", "lo0")), None)
    changed = [] if name is None else [one for one in _INTERFACES if one not in os.environ]
    try:
        for one in changed:
            os.environ[one] = str(name)
        yield
    finally:
        for one in changed:
            del os.environ[one]


def ends_with_parent(end: Callable[[], None]) -> None:
    """Call `end` in a thread when the process that started this one ends."""
    import threading

    def wait() -> None:
        sys.stdin.read()
        end()

    threading.Thread(target=wait, name="the first rank's end", daemon=True).start()
