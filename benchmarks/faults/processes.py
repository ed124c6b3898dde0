"""Processes that are killed at any moment and start again at once.

Each is a fork of a process that has loaded Hone's modules: a start costs what the program does, not what Python's
imports do. Its output goes to a file of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_FORKS: Final = multiprocessing.get_context("forkserver")
_LOADED: Final = [
    "benchmarks.faults.engine",
    "benchmarks.faults.processes",
    "proxy.commands.programs",
    "proxy.supervision.serve",
]
_LOOKS_S: Final = 0.02
_START_S: Final = 120.0  # on a loaded machine
_STOP_S: Final = 60.0


@dataclass
class FaultyProcess:
    """One program. `ready`: whether it does its work."""

    name: str
    target: Callable[..., None]
    args: Sequence[Any]
    log: Path
    ready: Callable[[], Awaitable[bool]]
    _process: Any = field(default=None, repr=False)  # a ForkServerProcess, which typeshed has on some platforms only

    @property
    def pid(self) -> int:
        """Return its process id."""
        return int(self._process.pid)

    async def start(self) -> None:
        """Start it, and wait until it is ready. Raises RuntimeError if it ends before that, or takes two minutes."""
        _FORKS.set_forkserver_preload(_LOADED)
        self._process = _FORKS.Process(target=_run, args=(self.log, self.target, *self.args), daemon=True)
        await asyncio.to_thread(self._process.start)
        await self.until_ready()

    async def until_ready(self) -> None:
        """Wait until it does its work. Raises RuntimeError as `start`."""
        deadline = time.monotonic() + _START_S
        while not await self.ready():
            if not self._process.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start; its log: {self.log}")
            await asyncio.sleep(_LOOKS_S)

    async def kill(self) -> None:
        """End it by signal 9. Raises RuntimeError if it was no longer running: it failed by itself."""
        if not self._process.is_alive():
            raise RuntimeError(f"{self.name} ended by itself with {self._process.exitcode}; its log: {self.log}")
        self._process.kill()
        await asyncio.to_thread(self._process.join)

    async def stop(self) -> None:
        """End it in order; by signal 9 if that takes a minute."""
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            await asyncio.to_thread(self._process.join, _STOP_S)
            self._process.kill()
            await asyncio.to_thread(self._process.join)


def function(
    name: str, target: Callable[..., None], args: Sequence[Any], log: Path, ready: Callable[[], Awaitable[bool]]
) -> FaultyProcess:
    """Return a process that calls a function of a module."""
    return FaultyProcess(name, target, args, log, ready)


def command(
    name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path, ready: Callable[[], Awaitable[bool]]
) -> FaultyProcess:
    """Return a process that runs `hone` with `argv`. `environment`: its HONE_ variables, all of them."""
    return FaultyProcess(name, _hone, (list(argv), dict(environment)), log, ready)


def _run(log: Path, target: Callable[..., None], *args: Any) -> None:
    with log.open("ab", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is for the program that started this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(*args)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however it ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _hone(argv: list[str], environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("HONE_")]:
        del os.environ[name]
    os.environ.update(environment)
    sys.argv = ["hone", *argv]
    from proxy.cli import main

    main()
