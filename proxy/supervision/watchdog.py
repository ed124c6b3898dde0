"""Run one program, and end it and all its children when the parent ends, even by `kill -9`.

Owns: the process group of one child. Run as a file with any Python (standard library only):

    python watchdog.py GRACE_S PROGRAM [ARGUMENT ...]

Standard input is the lifeline: the parent keeps the other end open and never writes. At its end, or on SIGTERM or
SIGINT, the group gets SIGTERM, and SIGKILL after GRACE_S seconds. If the watchdog itself is killed, the kernel ends the
child (Linux); the child's own children stay in the watchdog's session, where the parent can find them. The exit status
is the child's, or 128 + N if signal N ended it. Refuses: restarting.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
POLL_S = 0.02


def main(grace_s: float, argv: list[str]) -> int:
    """Run `argv` to its end and return its exit status."""
    try:
        # the process still has one thread, so code may run between fork and exec
        die = functools.partial(_die_with, os.getpid())
        child = subprocess.Popen(  # noqa: S603 - running the given program is this program's purpose
            argv, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=die
        )
    except OSError as e:
        sys.stderr.write(f"cannot run {argv[0]}: {e}\n")
        return 127
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: end.set())
    threading.Thread(target=_watch_lifeline, args=(end,), daemon=True).start()
    threading.Thread(target=_end_group, args=(child.pid, end, grace_s), daemon=True).start()
    status = child.wait()
    _signal_group(child.pid, signal.SIGKILL)  # the child's own children
    return status if status >= 0 else 128 - status


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl
            os.kill(os.getpid(), signal.SIGKILL)


def _watch_lifeline(end: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    end.set()


def _end_group(group: int, end: threading.Event, grace_s: float) -> None:
    end.wait()
    _signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
