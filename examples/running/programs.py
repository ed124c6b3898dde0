"""Programs of an example, each running until a block ends.

Owns: starting and stopping them, waiting until they listen, are ready or have ended, showing meanwhile what is waited
for, their ports, and a new folder for each run of an example. Refuses: their work.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOOK_INTERVAL_S = 1.0  # a signal between a check and the wait is seen by the next check, not when the program ends
UP_TIMEOUT_S = 420.0  # an engine may take minutes to load its model
GRACE_S = 60  # for the programs of `hone up`
LINE_EVERY_S = 15.0  # between two lines about what is waited for, where there is no terminal
ENDING_TIMEOUT_S = 90.0  # for a campaign to stop: it ends its attempts, its step and an engine
_PORTS = range(20_000, 32_000)  # below the ranges of Linux (32768-60999) and of macOS (49152-65535)


@contextlib.contextmanager
def program(arguments: list[str], port: int, data: Path) -> Iterator[None]:
    """Run a Python program until the block ends; begin the block when it listens. Its output goes to a log file.

    Raises:
        RuntimeError: the program ended, or did not listen in time.
    """
    name = arguments[1].rpartition(".")[2]
    log = data / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, stderr=out, cwd=ROOT)
        try:
            wait_until_listening(process, port, f"{name} (its log is {log})")
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def hone_program(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run `hone` with these arguments until the block ends; its errors go to a log file, its output to the caller.

    It ends with this process, whatever ends that. Ctrl-C in the terminal does not reach it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    watchdog = [sys.executable, "-m", "proxy.supervision.watchdog", str(GRACE_S)]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [*watchdog, sys.executable, "-m", "proxy.cli", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
            env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(ENDING_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def hone_up(
    arguments: Sequence[str], environment: Mapping[str, str], data: Path, console: Console
) -> Iterator[subprocess.Popen[str]]:
    """Run `hone up` until the block ends; begin the block when it is ready, and show meanwhile what it waits for.

    Raises:
        RuntimeError: it ended, or was not ready in time. The message has the end of its log.
    """
    log = data / "logs" / "up.log"
    with hone_program(["up", "--json", *arguments], environment, log) as process:
        events = _Events(process, log)
        with waiting_for("Starting Hone", console) as show:
            deadline = time.monotonic() + UP_TIMEOUT_S
            while not events.ready.wait(0.2):
                if process.poll() is not None or time.monotonic() > deadline:
                    events.join()
                    last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
                    raise RuntimeError(f"`hone up` did not become ready. The end of {log}:\n{last}")
                show(events.doing)
        yield process
    events.join()


class _Events(threading.Thread):
    """Reads the events of `hone up --json`, and writes them to its log as lines. `doing`: what it waits for."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        super().__init__(name="events of hone up", daemon=True)
        assert process.stdout is not None
        self._lines, self._log = process.stdout, log
        self.ready = threading.Event()
        self.doing = ""
        self.start()

    def run(self) -> None:
        with self._log.open("a", encoding="utf-8") as log, contextlib.suppress(ValueError):  # the pipe was closed
            for line in self._lines:
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    event = {"event": "", "text": line.rstrip()}
                log.write(f"{time.strftime('%H:%M:%S')}  {event['event']:<10}{event['text']}\n")
                log.flush()
                if event["event"] == "starting":
                    self.doing = event["text"].partition("(")[2].rstrip(")") or self.doing
                elif event["event"] == "up":
                    self.doing = f"{event['text']}"
                elif event["event"] == "ready":
                    self.ready.set()


@contextlib.contextmanager
def waiting_for(what: str, console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is done now, with the seconds since the block began.

    On a terminal the line moves; elsewhere a line is printed every `LINE_EVERY_S`, without control characters.
    """
    began = said_at = time.monotonic()

    def text(doing: str) -> str:
        return escape(f"{what}: {time.monotonic() - began:.0f} s" + (f", {doing}" if doing else ""))

    if console.is_terminal:
        with console.status(text("")) as status:
            yield lambda doing: status.update(text(doing))
        return

    def show(doing: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= LINE_EVERY_S:
            said_at = time.monotonic()
            console.print(text(doing))

    yield show


def run_to_its_end(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program; return its exit status. On a signal, ask it to stop and wait; `subprocess.run` would kill it.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the program has ended.
    """
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=ROOT)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_INTERVAL_S)
    except KeyboardInterrupt:
        if not _in_front_of_a_terminal():
            process.send_signal(signal.SIGINT)
        raise
    except BaseException:
        process.terminate()
        raise
    finally:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_TIMEOUT_S)
        finally:  # it takes too long, or Ctrl-C was pressed again
            if process.poll() is None:
                process.kill()
                process.wait()


def _in_front_of_a_terminal() -> bool:
    """Whether the terminal sends Ctrl-C to the started program too; a second signal would end it at once."""
    with contextlib.suppress(OSError), Path("/dev/tty").open("rb") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


def wait_until_listening(process: subprocess.Popen[bytes], port: int, what: str) -> None:
    """Wait until the process accepts connections on the loopback port."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} did not start to listen on port {port}")


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that are free now; while this process runs, no other call returns them.

    A program binds its port seconds after it was chosen. So the ports are outside the range from which a system serves
    whoever asks for any port: a stranger would get the port meanwhile, and the requests for the program.
    """
    claims = Path(tempfile.gettempdir()) / f"hone-ports-{os.getuid()}"
    claims.mkdir(mode=0o700, exist_ok=True)
    candidates = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
    return [next(port for port in candidates if _claimed(claims / str(port), port)) for _ in range(count)]


def _claimed(path: Path, port: int) -> bool:
    """Whether the port is free and was nobody's; it is this process's now, which keeps the file locked."""
    claim = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(claim)
        return False
    return True


def new_run(runs: Path) -> Path:
    """Create the first of the folders `runs/1`, `runs/2` … that does not exist, so that no two runs share one."""
    runs.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            (runs / str(number)).mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return runs / str(number)
