"""Keeping a program running: start it, wait until it is ready, restart it with backoff, end it with us.

Owns: one child's life, its log file and what to show of it. Refuses: knowing what the program is.
A child that ends with status 2 is set wrongly, and is not started again.
Every child runs under `proxy.supervision.watchdog`, so that it ends with us whatever ends us.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from proxy.errors import StartError
from proxy.supervision import watchdog
from recorder.base.errors import MISCONFIGURED
from recorder.processes import file_modes

log = logging.getLogger(__name__)

BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
CALM_S = 60.0  # up for this long: the next restart begins at the first backoff again
SETTLE_S = 4.0  # longer than a worker takes to find that its settings or its store are wrong
POLL_S = 0.1
KILLED_STARTS = 3  # so often is a program started anew that a signal ended before it was up; its own end is final
TAIL_LINES = 15
LOG_BYTES = 20 * 1024 * 1024  # a log longer than this is set aside at the next start


class ProgramState(StrEnum):
    """Where a supervised program stands."""

    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how to tell that it is well."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)  # put over our own environment
    unset: frozenset[str] = frozenset()  # variables of ours that it must not see
    ready: Callable[[], Awaitable[bool]] | None = None  # whether it is up and well
    check_every_s: float = POLL_S
    start_timeout_s: float = 300.0
    unresponsive_s: float | None = None  # restart when `ready` has said no for so long; None: never
    grace_s: float = 10.0
    settle_s: float = SETTLE_S  # without `ready`: it counts as up when it has lived this long
    backoff_s: tuple[float, ...] = BACKOFF_S  # waits before one restart after another


class Supervisor:
    """One program, kept running. `start()` returns when it is up; `stop()` ends it."""

    def __init__(self, program: Program, on_change: Callable[[Supervisor], None] | None = None) -> None:
        self.program = program
        self.state = ProgramState.STOPPED
        self.restarts = 0
        self.set_wrongly = False  # whether it ended because of its settings
        self.detail = ""
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self._started: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The watcher's pid while there is one; ending it ends the program."""
        return self._process.pid if self._process else None

    @property
    def was_up(self) -> bool:
        """Whether it has been up since `start`."""
        return self._started is not None and self._started.done()

    async def start(self) -> None:
        """Start the program and wait until it is up. Raises StartError with its last log lines."""
        self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_running(), name=f"supervise {self.program.name}")
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the program and everything it started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end()
        if self.state is not ProgramState.FAILED:
            self._become(ProgramState.STOPPED)

    def last_lines(self, count: int = TAIL_LINES) -> str:
        """The last lines that the program logged since it was last started."""
        return log_tail(self.program.log, self._log_start, count)

    async def _keep_running(self) -> None:
        assert self._started is not None
        failures = 0
        while True:
            self._become(ProgramState.STARTING if not self.restarts else ProgramState.RESTARTING)
            await self._launch()
            trouble = await self._until_up()
            if trouble is None:
                since = time.monotonic()
                self._become(ProgramState.UP)
                if not self._started.done():
                    self._started.set_result(None)
                trouble = await self._until_gone()
                failures = 0 if time.monotonic() - since > CALM_S else failures
            killed = _was_killed(self._process)
            self.set_wrongly = _was_set_wrongly(self._process)
            await self._end()
            if not self._started.done() and not (killed and failures < KILLED_STARTS):
                self._fail(trouble)
                return
            if self.set_wrongly:
                self._become(ProgramState.FAILED, f"{trouble}: its settings cannot work, it is not started again")
                return
            self.restarts += 1
            wait_s = self.program.backoff_s[min(failures, len(self.program.backoff_s) - 1)]
            failures += 1
            self._become(ProgramState.RESTARTING, f"{trouble}; restarting in {wait_s:.0f} s")
            log.warning(
                "%s %s; restarting in %.0f s. Its log: %s", self.program.name, trouble, wait_s, self.program.log
            )
            await asyncio.sleep(wait_s)

    def _fail(self, trouble: str) -> None:
        assert self._started is not None
        self._become(ProgramState.FAILED, trouble)
        lines = self.last_lines() or "(it logged nothing)"
        self._started.set_exception(
            StartError(f"{self.program.name} {trouble}. The last lines of {self.program.log}:\n{lines}")
        )

    def _become(self, state: ProgramState, detail: str = "") -> None:
        self.state, self.detail = state, detail
        if self._on_change is not None:
            self._on_change(self)

    async def _launch(self) -> None:
        path = self.program.log
        file_modes.make_folder(path.parent)
        if path.exists() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(path.suffix + ".1"))
        env = {name: value for name, value in os.environ.items() if name not in self.program.unset}
        with file_modes.open_log(path) as out:
            self._log_start = out.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                watchdog.__file__,
                str(self.program.grace_s),
                *self.program.argv,
                stdin=asyncio.subprocess.PIPE,  # the lifeline
                stdout=out,
                stderr=out,
                env={**env, "PYTHONUNBUFFERED": "1", **self.program.env},
                start_new_session=True,  # Ctrl-C is ours to pass on; and the session tells who belongs to the program
            )

    async def _until_up(self) -> str | None:
        """Wait until the program is up: None; or what went wrong."""
        assert self._process is not None
        deadline = time.monotonic() + (self.program.start_timeout_s if self.program.ready else self.program.settle_s)
        while time.monotonic() < deadline:
            if self._process.returncode is not None:
                return f"ended while starting ({_how(self._process.returncode)})"
            if self.program.ready is not None and await self.program.ready():
                return None
            await self._pause(POLL_S)
        return None if self.program.ready is None else f"was not ready after {self.program.start_timeout_s:.0f} s"

    async def _until_gone(self) -> str:
        """Wait until the program has ended or does not answer any more, and say which."""
        assert self._process is not None
        answered, ready, limit = time.monotonic(), self.program.ready, self.program.unresponsive_s
        while True:
            checked = ready is not None and limit is not None
            await self._pause(self.program.check_every_s if checked else None)
            if self._process.returncode is not None:
                return f"ended ({_how(self._process.returncode)})"
            if ready is None or limit is None or await ready():
                answered = time.monotonic()
            elif time.monotonic() - answered > limit:
                return f"did not answer its health check for {limit:.0f} s"

    async def _pause(self, seconds: float | None) -> None:
        """Sleep, but wake when the program ends. None: until then."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await process.wait()
        _kill_session(process.pid)
        self._process = None


def _kill_session(leader: int) -> None:
    """Kill what is left of a watcher's session: where the watcher itself was killed, nobody ended its grandchildren."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def log_tail(path: Path, start: int, count: int) -> str:
    """The last `count` lines of a file, of those after byte `start`."""
    try:
        with path.open("rb") as f:
            f.seek(max(start, path.stat().st_size - 64 * 1024))
            lines = f.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])


def _was_killed(process: asyncio.subprocess.Process | None) -> bool:
    """Whether a signal ended it, or its watcher: the kernel's for want of memory, or somebody's."""
    status = process.returncode if process is not None else None
    return status is not None and (status < 0 or status > 128)


def _was_set_wrongly(process: asyncio.subprocess.Process | None) -> bool:
    return process is not None and process.returncode == MISCONFIGURED


def _how(status: int) -> str:
    if status < 0:
        return f"signal {-status}"
    return f"signal {status - 128}" if status > 128 else f"exit status {status}"
