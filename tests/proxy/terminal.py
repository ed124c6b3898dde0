"""A program on a terminal of its own: what it draws there, and the keys that somebody presses.

Owns: the terminal and waiting for words on it. Every wait is bounded; none is a sleep.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LIMIT_S: Final = 60.0
COLUMNS: Final = 300  # so wide that no folder of a test breaks the lines that others wait for
CTRL_C: Final = b"\x03"
ROOT: Final = Path(__file__).parents[2]


class Terminal:
    """What is on it so far, and who runs there."""

    def __init__(self, process: subprocess.Popen[bytes], own: int) -> None:
        self.process = process
        self._own = own
        self.text = ""

    def wait_for(self, words: str) -> str:
        """All that was drawn since the last wait, until the words were."""
        deadline = time.monotonic() + LIMIT_S
        drawn = ""
        while words not in drawn:
            assert time.monotonic() < deadline, f"{words!r} was not drawn: {drawn[-2000:]!r}"
            drawn += self._read()
        return drawn

    def press(self, keys: bytes) -> None:
        """As somebody at the keyboard."""
        os.write(self._own, keys)

    def end(self) -> int:
        """The exit status, once it has ended."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end: {self.text[-2000:]!r}"
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> str:
        ready, _, _ = select.select([self._own], [], [], 0.2)
        if not ready:
            return ""
        with contextlib.suppress(OSError):  # its other end was closed
            drawn = os.read(self._own, 65536).decode(errors="replace")
            self.text += drawn
            return drawn
        return ""


@contextmanager
def on_terminal(*arguments: str, environment: Mapping[str, str] | None = None, rows: int = 40) -> Iterator[Terminal]:
    """A Python program (`-m proxy.cli …`) on a terminal, until the block ends."""
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    here = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # would overrule it
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKES_IT, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env=here | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | dict(environment or {}),
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(process, own)
    finally:
        process.kill()
        process.wait()
        os.close(own)


# The terminal becomes the program's own, so that Ctrl-C reaches it.
_TAKES_IT: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
