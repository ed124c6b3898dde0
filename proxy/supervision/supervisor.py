"""Keep a child process running: start it, wait until it is ready, restart it with backoff, end it with its parent.

Owns: the child's life, its log file and its state. Refuses: what the program is. A child that ends with status 2 is
misconfigured and is not restarted, nor is one that signal 9 ended three times in one phase. Every child runs under
`proxy.supervision.watchdog`, which ends it whenever the parent ends.
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
from proxy.programs.log_files import LOG_BYTES, cut_log, old_log
from proxy.supervision import watchdog
from recorder.base.errors import MISCONFIGURED
from recorder.processes import file_modes
from recorder.processes.phase_file import ProgramPhase, read_phase

log = logging.getLogger(__name__)

BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
CALM_S = 60.0  # after being up for this long, the backoff starts again
SETTLE_S = 4.0  # longer than a worker needs to find wrong settings or a wrong store
POLL_S = 0.1
KILLED_STARTS = 3  # restarts of a program that a signal ended before it was up; an exit of its own is final
KILLS_IN_A_PHASE = 3  # by signal 9, after which a program that notes its phase is not restarted
TAIL_LINES = 15
LOG_LOOK_S = 30.0  # between two looks whether the log of a running program is too long


class ProgramState(StrEnum):
    """The state of a supervised program."""

    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Program:
    """A command, its environment, and its health check. Times are in seconds."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)  # added to the parent's environment
    unset: frozenset[str] = frozenset()  # variables removed from the parent's environment
    ready: Callable[[], Awaitable[bool]] | None = None  # the health check
    may_start: Callable[[], Awaitable[bool]] | None = None  # it is started, and restarted, only once this is true
    check_every_s: float = POLL_S
    start_timeout_s: float = 300.0
    unresponsive_s: float | None = None  # restart after `ready` was false for this long; None: never
    grace_s: float = 10.0
    settle_s: float = SETTLE_S  # without `ready`, it is up after running this long
    backoff_s: tuple[float, ...] = BACKOFF_S  # the waits before successive restarts
    phase_file: Path | None = None  # where it notes its phase (`recorder.processes.phase_file`)
    if_killed: str = ""  # what to do if it is killed again and again in one phase


class Supervisor:
    """Keeps one program running. `start()` returns when it is up; `stop()` ends it."""

    def __init__(self, program: Program, on_change: Callable[[Supervisor], None] | None = None) -> None:
        self.program = program
        self.state = ProgramState.STOPPED
        self.restarts = 0
        self.misconfigured = False  # whether it ended because of its settings
        self.detail = ""
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self._launched_at = 0.0
        self._killed_in: ProgramPhase | None = None
        self._kills = 0  # by signal 9 in that phase, without a finished step between them
        self._started: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._log_task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of its watchdog, None while it is not running; ending the watchdog ends the program."""
        return self._process.pid if self._process else None

    @property
    def running_s(self) -> float:
        """Seconds since the program was last started."""
        return time.monotonic() - self._launched_at

    @property
    def was_up(self) -> bool:
        """Whether it has been up since `start`."""
        return self._started is not None and self._started.done()

    async def start(self) -> None:
        """Start the program and wait until it is up. Raises StartError with its last log lines."""
        self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_running(), name=f"supervise {self.program.name}")
        self._log_task = asyncio.create_task(self._keep_log_short(), name=f"log of {self.program.name}")
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the program and everything it started."""
        for task in (self._task, self._log_task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._end()
        if self.state is not ProgramState.FAILED:
            self._become(ProgramState.STOPPED)

    def last_lines(self, count: int = TAIL_LINES) -> str:
        """The last lines of the program's log since its last start."""
        return log_tail(self.program.log, self._log_start, count)

    async def _keep_running(self) -> None:
        assert self._started is not None
        failures = 0
        while True:
            self._become(ProgramState.STARTING if not self.restarts else ProgramState.RESTARTING)
            await self._until_allowed()
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
            self.misconfigured = _was_misconfigured(self._process)
            hopeless = self._count_kill()
            await self._end()
            if hopeless is not None:
                self._give_up(f"{trouble}: {hopeless}")
                return
            if not self._started.done() and not (killed and failures < KILLED_STARTS):
                self._fail(trouble)
                return
            if self.misconfigured:
                self._give_up(f"{trouble}: its settings are wrong, so it is not restarted")
                return
            self.restarts += 1
            wait_s = self.program.backoff_s[min(failures, len(self.program.backoff_s) - 1)]
            failures += 1
            self._become(ProgramState.RESTARTING, f"{trouble}; restarting in {wait_s:.0f} s")
            log.warning(
                "%s %s; restarting in %.0f s. Its log: %s", self.program.name, trouble, wait_s, self.program.log
            )
            await asyncio.sleep(wait_s)

    def _count_kill(self) -> str | None:
        """Count an end by signal 9; return why the program is not restarted, if it was one too many in one phase.

        Another phase, or a step that was finished since the last kill, counts anew.
        """
        if self.program.phase_file is None or not _was_ended_by(self._process, signal.SIGKILL):
            return None
        phase = read_phase(self.program.phase_file)
        if self._killed_in is None or phase.name != self._killed_in.name or phase.steps > 0:
            self._kills = 0
        self._killed_in = phase
        self._kills += 1
        if self._kills < KILLS_IN_A_PHASE:
            return None
        return (
            f"it was killed {self._kills} times in the phase {phase.name!r}, as the kernel does where memory is full, "
            f"so it is not restarted. {self.program.if_killed}"
        ).rstrip()

    def _give_up(self, trouble: str) -> None:
        """Do not restart the program; if it has not been up, `start` raises."""
        assert self._started is not None
        if self._started.done():
            self._become(ProgramState.FAILED, trouble)
        else:
            self._fail(trouble)

    def _fail(self, trouble: str) -> None:
        assert self._started is not None
        self._become(ProgramState.FAILED, trouble)
        lines = self.last_lines() or "(its log is empty)"
        self._started.set_exception(
            StartError(f"{self.program.name} {trouble}. The last lines of {self.program.log}:\n{lines}")
        )

    def _become(self, state: ProgramState, detail: str = "") -> None:
        self.state, self.detail = state, detail
        if self._on_change is not None:
            self._on_change(self)

    async def _until_allowed(self) -> None:
        while self.program.may_start is not None and not await self.program.may_start():  # noqa: ASYNC110 - the store's
            await asyncio.sleep(self.program.check_every_s)

    async def _keep_log_short(self) -> None:
        while True:
            await asyncio.sleep(LOG_LOOK_S)
            with contextlib.suppress(OSError):
                if await asyncio.to_thread(cut_log, self.program.log):
                    self._log_start = 0

    def kill_process(self, pid: int) -> bool:
        """Kill the program if a process is part of it, so that it is restarted. Return whether it is."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pid is not None and os.getsid(pid) == self.pid:
                _kill_session(self.pid)
                return True
        return False

    async def _launch(self) -> None:
        self._launched_at = time.monotonic()
        self._process, self._log_start = await launch_program(self.program)

    async def _until_up(self) -> str | None:
        """Wait until the program is up. Returns None, or what went wrong."""
        assert self._process is not None
        deadline = time.monotonic() + (self.program.start_timeout_s if self.program.ready else self.program.settle_s)
        while time.monotonic() < deadline:
            if self._process.returncode is not None:
                return f"ended while starting ({describe_end(self._process.returncode)})"
            if self.program.ready is not None and await self.program.ready():
                return None
            await self._pause(POLL_S)
        return None if self.program.ready is None else f"was not ready after {self.program.start_timeout_s:.0f} s"

    async def _until_gone(self) -> str:
        """Wait until the program has ended or stopped answering. Returns which."""
        assert self._process is not None
        answered, ready, limit = time.monotonic(), self.program.ready, self.program.unresponsive_s
        while True:
            checked = ready is not None and limit is not None
            await self._pause(self.program.check_every_s if checked else None)
            if self._process.returncode is not None:
                return f"ended ({describe_end(self._process.returncode)})"
            if ready is None or limit is None or await ready():
                answered = time.monotonic()
            elif time.monotonic() - answered > limit:
                return f"did not answer its health check for {limit:.0f} s"

    async def _pause(self, seconds: float | None) -> None:
        """Sleep until the program ends, for at most `seconds`."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def _end(self) -> None:
        if self._process is not None:
            await end_program(self._process)
            self._process = None


async def launch_program(program: Program) -> tuple[asyncio.subprocess.Process, int]:
    """Start a program under a watchdog, with its output in its log. Returns its process, and where its log begins.

    Raises OSError.
    """
    path = program.log
    if program.phase_file is not None:
        program.phase_file.unlink(missing_ok=True)
    file_modes.make_folder(path.parent)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(old_log(path))
    env = {name: value for name, value in os.environ.items() if name not in program.unset}
    with file_modes.open_log(path) as out:
        begins = out.tell()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            watchdog.__file__,
            str(program.grace_s),
            *program.argv,
            stdin=asyncio.subprocess.PIPE,  # the lifeline
            stdout=out,
            stderr=out,
            env={**env, "PYTHONUNBUFFERED": "1", **program.env},
            start_new_session=True,  # the parent handles Ctrl-C; the session has all its processes
        )
    return process, begins


async def end_program(process: asyncio.subprocess.Process) -> None:
    """End a program, if it has not ended, and everything that it started."""
    if process.returncode is None:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    await process.wait()
    _kill_session(process.pid)


def _kill_session(leader: int) -> None:
    """Kill the rest of a watchdog's session: a killed watchdog leaves its grandchildren running."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def log_tail(path: Path, start: int, count: int) -> str:
    """The last `count` lines of a file after byte `start`."""
    try:
        with path.open("rb") as f:
            f.seek(max(start, path.stat().st_size - 64 * 1024))
            lines = f.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-count:])


def _was_killed(process: asyncio.subprocess.Process | None) -> bool:
    """Whether a signal ended it or its watchdog, for example from the kernel's out-of-memory killer."""
    status = process.returncode if process is not None else None
    return status is not None and (status < 0 or status > 128)


def _was_ended_by(process: asyncio.subprocess.Process | None, number: signal.Signals) -> bool:
    """Whether this signal ended it or its watchdog."""
    return process is not None and process.returncode in (-number, 128 + number)


def _was_misconfigured(process: asyncio.subprocess.Process | None) -> bool:
    return process is not None and process.returncode == MISCONFIGURED


def describe_end(status: int) -> str:
    """How a program ended, from its exit status."""
    if status < 0:
        return f"signal {-status}"
    return f"signal {status - 128}" if status > 128 else f"exit status {status}"
