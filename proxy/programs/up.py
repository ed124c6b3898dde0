"""`hone up`: engine, proxy, judge and learner as child processes, kept running and ended together.

Owns: which programs there are, the order in which they start and stop, and the lines on the terminal. Refuses: their
work, and what run.json says of them (`proxy.programs.run_file`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from proxy.engine.command import engine_command, engine_key, engine_urls, health_check, require_free
from proxy.programs.engine import engine_program
from proxy.programs.engine_file import running_engine
from proxy.programs.run_file import remove_run_file, write_run_file
from proxy.programs.supervise import Program, ProgramState, Supervisor
from proxy.settings.hone import HoneSettings
from proxy.settings.showing import as_environment
from recorder.store.migrate import open_store

PROXY_START_TIMEOUT_S = 60.0
_COLOURS = {
    ProgramState.STARTING: "yellow",
    ProgramState.UP: "green",
    ProgramState.RESTARTING: "yellow",
    ProgramState.FAILED: "red",
    ProgramState.STOPPED: "dim",
}


class Up:
    """Everything of one data folder, running. `run()` returns when told to stop."""

    def __init__(
        self,
        settings: HoneSettings,
        *,
        config: Path | None,
        flags: Mapping[str, object],
        console: Console,
        with_judge: bool = True,
        with_learner: bool = True,
    ) -> None:
        self._settings = settings
        self._config = config
        self._environment = as_environment(flags)  # the children see our flags
        self._console = console
        self._with_judge = with_judge
        self._with_learner = with_learner
        self._engine_runs = self._take_engine()
        self._live: Live | None = None
        self.supervisors: dict[str, Supervisor] = {}
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Start everything, keep it running until SIGINT or SIGTERM, stop it. Raises StartError, PortInUse."""
        self._require_ports()
        store = await open_store(
            self._settings.data, self._settings.recorder, migrate=True, project=self._settings.project
        )
        await store.close()
        with self._signals(), self._shown():
            try:
                await self._until_stopped(self._start())
                if not self._stop.is_set():
                    self._announce()
                    await self._stop.wait()
            finally:
                await self._end()

    async def _start(self) -> None:
        """The engine beside the proxy, then the workers, which need the store that the proxy has prepared."""
        async with asyncio.TaskGroup() as group:
            if self._starts_engine:
                group.create_task(self._start_one(self._engine()))
            group.create_task(self._start_proxy_and_workers())

    async def _start_proxy_and_workers(self) -> None:
        await self._start_one(self._proxy())
        async with asyncio.TaskGroup() as group:
            if self._with_judge:
                group.create_task(self._start_one(self._hone("judge")))
            if self._with_learner and self._settings.declared_aliases():
                group.create_task(self._start_one(self._hone("learn")))

    async def _start_one(self, program: Program) -> None:
        supervisor = Supervisor(program, self._changed)
        self.supervisors[program.name] = supervisor
        await supervisor.start()

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, or leave it when a signal says so."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            return
        try:
            await doing
        except ExceptionGroup as group:  # the first failure is the story; the others were cancelled for it
            raise _first(group) from None

    async def _end(self) -> None:
        """Workers first, then the proxy, which finishes its requests, then the engine."""
        remove_run_file(self._settings.data)
        for name in ("learn", "judge", "proxy", "engine"):
            if name in self.supervisors:
                await self.supervisors[name].stop()

    # --- the programs

    def _require_ports(self) -> None:
        if self._settings.proxy.port == 0:
            self._settings.proxy.port = _free_port(self._settings.proxy.host)
        require_free(self._settings.proxy.host, self._settings.proxy.port, "proxy.port (--port)")
        if self._starts_engine:
            require_free(self._settings.engine.host, self._settings.engine.port, "engine.port")

    def _take_engine(self) -> bool:
        """Whether `hone engine` runs for this data folder: it is used, wherever it listens, and stays when we end."""
        engine = self._settings.engine
        there = running_engine(self._settings.data)
        if engine.urls or there is None or there.base != engine.base:
            return False
        engine.host, engine.port = there.host, there.port
        return True

    @property
    def _starts_engine(self) -> bool:
        """Whether an engine is started here. With models of other providers alone none is needed."""
        engine = self._settings.engine
        return (
            not self._engine_runs and not engine.urls and (engine.base is not None or not self._settings.proxy.models)
        )

    def _engine(self) -> Program:
        engine = self._settings.engine
        key = engine_key(engine, self._settings.data)
        command = engine_command(engine, key=key, served_names=self._settings.base_models())
        return engine_program(engine, command, self._log("engine"))

    def _proxy(self) -> Program:
        proxy, engine = self._settings.proxy, self._settings.engine
        env = {"HONE_PROXY__PORT": str(proxy.port), "HONE_PROXY__HOST": proxy.host}
        if self._engine_runs:
            env |= {"HONE_ENGINE__PORT": str(engine.port), "HONE_ENGINE__HOST": engine.host}
        return self._hone(
            "serve",
            name="proxy",
            env=env,
            ready=health_check(self.proxy_url, "/healthz"),
            grace_s=proxy.stop_timeout_s + 10,  # calls that it cuts then are still recorded and told (`draining`)
        )

    def _hone(
        self,
        command: str,
        *,
        name: str | None = None,
        env: dict[str, str] | None = None,
        ready: Callable[[], Awaitable[bool]] | None = None,
        grace_s: float = 15.0,
    ) -> Program:
        argv = [
            sys.executable,
            "-P",
            "-m",
            "proxy.cli",
            command,
            "--data",
            str(self._settings.data),
        ]  # -P: no module of cwd
        if self._config is not None:
            argv += ["--config", str(self._config)]
        return Program(
            name=name or command,
            argv=tuple(argv),
            env={**self._environment, **(env or {})},
            log=self._log(name or command),
            ready=ready,
            start_timeout_s=PROXY_START_TIMEOUT_S,
            grace_s=grace_s,
        )

    def _log(self, name: str) -> Path:
        return self._settings.data / "logs" / f"{name}.log"

    @property
    def proxy_url(self) -> str:
        """Where agents find the proxy, without /v1."""
        host = self._settings.proxy.host
        return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{self._settings.proxy.port}"  # noqa: S104

    # --- telling about it

    def _changed(self, supervisor: Supervisor) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif supervisor.state is not ProgramState.STARTING:
            self._console.print(f"{supervisor.program.name:<8} {supervisor.state.value} {supervisor.detail}".rstrip())
        if self._started():
            self._write_run_file()

    def _started(self) -> bool:
        return "proxy" in self.supervisors and self.supervisors["proxy"].state is ProgramState.UP

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for name, supervisor in self.supervisors.items():
            state = f"[{_COLOURS[supervisor.state]}]{supervisor.state.value}[/]"
            table.add_row(name, state, supervisor.detail or f"[dim]{supervisor.program.log}[/]")
        return table

    def _announce(self) -> None:
        names = ", ".join(self._settings.model_names())
        self._console.print(f"\nReady: base_url [bold]{self.proxy_url}/v1[/], model [bold]{names}[/]. Ctrl-C stops.\n")

    def _write_run_file(self) -> None:
        pids = {name: s.pid for name, s in self.supervisors.items() if s.pid is not None}
        write_run_file(
            self._settings.data,
            proxy_url=self.proxy_url,
            engine_urls=engine_urls(self._settings.engine),
            pids=pids,
        )

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with Live(self._table(), console=self._console, auto_refresh=False) as live:  # drawn when something changed
            self._live = live
            try:
                yield
            finally:
                self._live = None

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
