"""`hone serve --workers N`: several serving processes on one port, started and stopped together.

Owns: the port, which it reserves without listening, the workers, and the folder of their sockets. Refuses: serving
(`proxy.supervision.serve`), requests between workers (`proxy.worker_ipc`), a program's life
(`proxy.supervision.supervisor`).

Each worker is a proxy like any other on the same store; leases decide which of them does a task that only one may do. A
worker that dies is restarted. A misconfigured worker stops all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from proxy.doctor.checkup import hone_argv
from proxy.engine.base import require_models
from proxy.engine.command import engine_key, url_host
from proxy.errors import ConfigError, StartError
from proxy.settings.display import as_environment
from proxy.settings.hone import HoneSettings
from proxy.supervision.draining import CANCEL_S, END_S
from proxy.supervision.sockets import bind, listen
from proxy.supervision.supervisor import Program, ProgramState, Supervisor
from proxy.worker_ipc.peers import WorkerPeers
from recorder.processes.signals import call_on_stop
from recorder.store.bootstrap import open_store

START_TIMEOUT_S: Final = 60.0
LOG_TAIL_LINES: Final = 5  # log lines of a misconfigured worker, shown at the end
_CLOSING_S: Final = 3.0  # for commits, leases and the socket after a worker's last call

log = logging.getLogger(__name__)


def stop_grace_s(settings: HoneSettings) -> float:
    """How long a worker may take to stop, in seconds: running calls, errors for interrupted ones, and its own end."""
    return settings.proxy.stop_timeout_s + END_S + CANCEL_S + _CLOSING_S


class WorkerSupervisor:
    """All workers of one `hone serve`. `run()` returns after SIGINT or SIGTERM."""

    def __init__(self, settings: HoneSettings, *, config: Path | None, flags: Mapping[str, object]) -> None:
        self._settings = settings
        self._config = config
        self._environment = as_environment(flags)  # the workers get this command's flags
        self._numbers: Final = range(1, settings.proxy.workers + 1)
        self._supervisors: list[Supervisor] = []
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run the workers until SIGINT or SIGTERM, then let all finish their calls.

        Raises ConfigError if one is misconfigured, PortInUse, StartError, StoreError.
        """
        _require_linux()
        require_models(self._settings)
        with (
            reserve_port(self._settings.proxy.host, self._settings.proxy.port) as port,
            tempfile.TemporaryDirectory(prefix="hone-workers-") as folder,
            call_on_stop(self._stop.set),
        ):
            await self._prepare()
            peers = WorkerPeers(Path(folder), 0, len(self._numbers))
            async with peers.running():
                self._supervisors = [
                    Supervisor(self._program(n, port, peers, Path(folder)), self._changed) for n in self._numbers
                ]
                await self._run(port)

    async def _prepare(self) -> None:
        """Create once what several processes must not create at the same time: the store and the engine key."""
        settings = self._settings
        store = await open_store(settings.data, settings.recorder, migrate=True, project=settings.project)
        await store.close()
        engine_key(settings.engine, settings.data)

    async def _run(self, port: int) -> None:
        started = asyncio.gather(*(one.start() for one in self._supervisors))
        stopping = asyncio.ensure_future(self._stop.wait())
        either: set[asyncio.Future[Any]] = {started, stopping}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                await started
                log.info(
                    "%d workers for %s at http://%s:%d/v1; their logs: %s",
                    len(self._numbers), ", ".join(self._settings.model_names()), url_host(self._settings.proxy.host),
                    port, self._log("N"),
                )  # fmt: skip
            await stopping
        except StartError as e:
            if any(one.misconfigured for one in self._supervisors):
                raise ConfigError(str(e)) from e
            raise
        finally:
            started.cancel()
            stopping.cancel()
            await asyncio.gather(started, stopping, return_exceptions=True)
            await asyncio.gather(*(one.stop() for one in self._supervisors))
        self._raise_failure()

    def _program(self, number: int, port: int, peers: WorkerPeers, folder: Path) -> Program:
        argv = hone_argv("serve", self._settings, self._config)
        proxy = self._settings.proxy
        return Program(
            name=f"worker {number}",
            argv=(*argv, "--worker", str(number), "--meet", str(folder)),
            env={
                **self._environment,
                "HONE_PROXY__HOST": proxy.host,
                "HONE_PROXY__PORT": str(port),
                "HONE_PROXY__WORKERS": str(proxy.workers),
            },
            log=self._log(str(number)),
            ready=partial(_answers, peers, number),
            start_timeout_s=START_TIMEOUT_S,
            grace_s=stop_grace_s(self._settings),
        )

    def _log(self, number: str) -> Path:
        return self._settings.data / "logs" / f"proxy-{number}.log"

    def _changed(self, supervisor: Supervisor) -> None:
        if supervisor.state is ProgramState.UP:
            log.info("%s is up", supervisor.program.name)
        if supervisor.state is ProgramState.FAILED and supervisor.was_up:
            self._stop.set()

    def _raise_failure(self) -> None:
        """Raise ConfigError if a worker failed after it had been up."""
        for one in self._supervisors:
            if one.state is ProgramState.FAILED and one.was_up:
                raise ConfigError(
                    f"{one.program.name} {one.detail}. The last lines of {one.program.log}:\n"
                    f"{one.last_lines(LOG_TAIL_LINES)}"
                )


async def _answers(peers: WorkerPeers, number: int) -> bool:
    return await peers.figures_of(number) is not None


@contextlib.contextmanager
def reserve_port(host: str, port: int) -> Iterator[int]:
    """Reserve a port on which only the workers can listen. Port 0 selects a free one.

    Raises PortInUse if another socket listens there: without this check, SO_REUSEPORT would share a port with any
    process of this user.
    """
    if port:
        listen(host, port).close()
    with bind(host, port, shared=True) as sock:
        # Without this option the socket blocks all others except those that share the port, though it does not listen.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        yield sock.getsockname()[1]


def _require_linux() -> None:
    if sys.platform != "linux":
        raise ConfigError(
            "`proxy.workers` (--workers) is more than 1: only Linux distributes the connections of one port to "
            "several processes. Set it to 1."
        )
