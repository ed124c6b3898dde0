"""Programs around Hone in an example, each running until a block ends.

Owns: starting and stopping them, waiting until they listen or have ended, their ports, and a new folder for each run of
an example. Refuses: Hone's own programs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOOK_INTERVAL_S = 1.0  # a signal between a check and the wait is seen by the next check, not when the program ends
ENDING_TIMEOUT_S = 90.0  # for a campaign to stop: it ends its attempts, its step and an engine


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
    """Return different loopback ports that are free now."""
    with contextlib.ExitStack() as sockets:
        taken = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]


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
