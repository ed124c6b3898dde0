"""`hone serve`: one proxy process, with its HTTP server, its signals and its parts.

Owns: an orderly stop, and the order in which the parts of a serving process open and close. Refuses: the socket
(`proxy.supervision.sockets`), routes (`proxy.supervision.app`), and several processes (`proxy.supervision.workers`).

The server is uvicorn: it reports a client's disconnect to a handler at any time, streaming or not, it waits for slow
readers, and it serves raw ASGI on httptools and uvloop. granian measured the same (benchmarks/upstream.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.api.status import Setting
from proxy.engine.base import require_models
from proxy.engine.command import engine_key, url_host
from proxy.engine.parsers import engine_parsers
from proxy.http.asgi import App
from proxy.http.connections import KEEP_ALIVE_S, ConnectionTable, HttpConnection
from proxy.notifications.notifier import Notifier
from proxy.notifications.store_trouble import StoreTroubleReporter, TroubleWatch
from proxy.notifications.target import Target, find_target
from proxy.programs.service import ProgramService
from proxy.programs.start_request import declared_jobs, declared_recipes
from proxy.settings.display import describe_leaves, display_value, secret_values
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import ProxySettings, base_name
from proxy.settings.toml_writer import toml_lines
from proxy.supervision import draining
from proxy.supervision.app import AppParts, HoneApp, create_app
from proxy.supervision.draining import DrainMiddleware
from proxy.supervision.first_request import describe_ready, local_url
from proxy.supervision.sockets import listen
from proxy.versions.adapter_files import AdapterFiles
from proxy.versions.controller import Controller
from proxy.versions.routing import ServiceRouter
from proxy.worker_ipc.peers import WorkerPeers
from proxy.worker_ipc.worker_socket import WorkerSocket
from recorder.capture.recorder import Recorder
from recorder.maintenance.sweep import Sweeper
from recorder.queue.leases import PROXY, holder_name, keep_presence
from recorder.queue.notifications import NoticeKind
from recorder.registry.keys import has_keys
from recorder.search.indexer import Indexer
from recorder.setting_changes.changeable_settings import PAGE, list_changeable, setting_path
from recorder.setting_changes.follower import SettingsFollower
from recorder.setting_changes.overlay import given_aliases, value_at
from recorder.store.bootstrap import open_store
from recorder.store.data_folder import ADAPTERS, share_adapters
from recorder.store.database import Project
from recorder.totals.follower import Follower
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings

SecondListener = Callable[[App], AbstractAsyncContextManager[None]]


async def serve(
    app: HoneApp,
    sock: socket.socket,
    *,
    stop_timeout_s: float = 30.0,
    second_listener: SecondListener | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve on `sock` until SIGINT, SIGTERM or cancellation; running requests get `stop_timeout_s` to finish.

    Longer ones are interrupted with an error message. New requests get 503 meanwhile. `second_listener` is a context
    that gets the served app and serves it over another socket. `ready` is called when it answers.
    """
    middleware = DrainMiddleware(app, app.stop)
    config = uvicorn.Config(
        middleware,
        http=cast("type[asyncio.Protocol]", partial(HttpConnection, app.connections)),
        ws="none",
        lifespan="off",  # entered below, so that an error at the start reaches the caller
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # the peer's address decides what it may do, so headers must not change it
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # `DrainMiddleware` has ended all requests by then
    )
    async with app.running(), second_listener(middleware) if second_listener is not None else contextlib.nullcontext():
        gc.collect()
        gc.freeze()  # full collections skip what was imported
        ready()
        await _until_stopped(_Server(config, middleware, app.connections, stop_timeout_s), sock)


async def _until_stopped(server: _Server, sock: socket.socket) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.end()
        await serving
        raise


class _Server(uvicorn.Server):
    """uvicorn's server, which listens until the last request has ended and does not raise signals again."""

    def __init__(
        self,
        config: uvicorn.Config,
        middleware: DrainMiddleware,
        connections: ConnectionTable,
        stop_timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._middleware = middleware
        self._connections = connections
        self._stop_timeout_s = stop_timeout_s
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._ending.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal as uvicorn does, and wake `main_loop`."""
        super().handle_exit(sig, frame)
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for the end by an event, where uvicorn polls ten times a second.

        uvicorn refreshes the date header in every tenth loop; here every loop does, once a second.
        """
        while not await self.on_tick(0):
            self._connections.end_late(asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain requests while the socket still listens, then close it without resetting new connections."""
        await self._middleware.drain(self._stop_timeout_s, lambda: self.force_exit)
        await draining.close_listener(sockets or ())
        for server in self.servers:
            server.close()
        await draining.wait_for_requests(self._silent)
        await super().shutdown(sockets)

    def _silent(self) -> bool:
        """Whether a connection exists on which no request has begun."""
        made = self.server_state.connections
        return any(one.cycle is None for one in made if isinstance(one, HttpToolsProtocol))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; a second signal does not wait for running requests."""
        loop, caught = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        with contextlib.suppress(RuntimeError, ValueError):  # not the main thread: the caller stops the server
            for number in caught:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError, ValueError):
                for number in caught:
                    loop.remove_signal_handler(number)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The number of a worker process, and the folder with the sockets of all workers."""

    number: int
    folder: Path


def settings_view(follower: SettingsFollower, origin: Mapping[str, str]) -> tuple[Setting, ...]:
    """All settings in force, for the page Settings. `origin`: where each came from (`LoadedSettings.origin`)."""
    shown = follower.settings.model_copy(update={"aliases": given_aliases(follower.settings)})
    changeable = frozenset(list_changeable(shown))
    return tuple(
        _setting(follower, key, value, about, origin.get(key, "default"), changeable=key in changeable)
        for key, value, about in describe_leaves(shown)
    )


def _setting(follower: SettingsFollower, key: str, value: Any, about: str, origin: str, *, changeable: bool) -> Setting:
    change = follower.changes.get(key)
    return Setting(
        key,
        display_value(key, value),
        origin if change is None else PAGE,
        about,
        change,
        changeable,
        value_at(follower.started_with, key) if changeable else None,
        None if change is None or value is None else toml_lines(setting_path(key), value),
    )


def proxy_url(proxy: ProxySettings, host: str, port: int) -> str:
    """The URL at which other programs reach the proxy, without /v1."""
    return proxy.url or f"http://{url_host(host)}:{port}"


def _notifying(
    target: Target | None,
    recorder: Recorder,
    project: Project,
    pages: Project,
    owner: str,
    worker: WorkerIdentity | None,
    follower: SettingsFollower,
) -> Sequence[Callable[[], AbstractAsyncContextManager[None]]]:
    """The programs that send notifications. `pages`: the project by the connections of the pages."""
    if target is None:
        return []

    def by_hand() -> set[str]:
        return {name for name, alias in follower.aliases().items() if alias.promote == "manual"}

    parts = [
        Notifier(project, target, owner, lambda: load_status(pages, LoopSettings.current(follower)), by_hand).running
    ]
    if NoticeKind.STORE_TROUBLE in target.kinds:
        watch = TroubleWatch(recorder.trouble, lambda: recorder.stats().unrecorded_turns)
        where = target.pages or f"The proxy on {socket.gethostname()}"
        folder = worker.folder if worker is not None else None
        parts.append(StoreTroubleReporter(project, target, where, watch, folder).running)
    return parts


async def run(
    settings: HoneSettings, worker: WorkerIdentity | None = None, *, origin: Mapping[str, str] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, PortInUse, StoreError."""
    require_models(settings)
    aliases = settings.declared_aliases()
    peers = WorkerPeers(worker.folder, worker.number, settings.proxy.workers) if worker is not None else None
    sock = listen(settings.proxy.host, settings.proxy.port, shared=worker is not None)
    host, port = sock.getsockname()[:2]
    store = await open_store(settings.data, settings.recorder, migrate=True, project=settings.project)
    project = Project(store, settings.project)
    pages_store = store.limited(settings.proxy.pages_timeout_s)
    try:
        url = proxy_url(settings.proxy, host, port)
        target = find_target(settings.notify, url if settings.proxy.pages else None)
        share_adapters(settings.data, settings.engine.adapter_group)
        key, owner = engine_key(settings.engine, settings.data), holder_name()
        versions = ServiceRouter(
            project,
            settings.proxy,
            proxy_url=url,
            engine_key=key,
            proxy_id=owner,  # so that leases of a killed proxy are recognised as free
            declared=aliases,
        )
        recorder = Recorder(store, settings.recorder, process=owner)
        follower = SettingsFollower(project, settings)
        controller = Controller(
            project,
            versions,
            recorder,
            engine=settings.engine,
            proxy=settings.proxy,
            follower=follower,
            default_base=base_name(settings.engine),
            engine_key=key,
            files=AdapterFiles(settings.adapters, settings.data.resolve() / ADAPTERS),
        )
        app = create_app(
            AppParts(
                project=project,
                settings=settings.proxy,
                recorder_settings=settings.recorder,
                recorder=recorder,
                versions=versions,
                background=(
                    follower.running,
                    partial(keep_presence, project, PROXY, owner, settings.recorder.lease_s),
                    Sweeper(project, settings.recorder, owner).running,
                    Indexer(project, owner).running,
                    Follower(project, settings.recorder, owner).running,
                    *((controller.running,) if aliases else ()),  # without an alias, no engine is needed
                    *_notifying(
                        target, recorder, project, Project(pages_store, settings.project), owner, worker, follower
                    ),
                ),
                fallbacks=settings.fallbacks(),
                shadows=settings.shadows(),
                reasoning_parser=engine_parsers(settings.engine).thinking.name,
                follower=follower,
                has_aliases=bool(aliases),
                share=settings.engine.share,
                mcp=settings.mcp,
                peers=peers,
                pages_store=pages_store,
                shown_settings=partial(settings_view, follower, origin or {}),
                notified=target,
                programs=ProgramService(
                    settings.data,
                    declared_jobs(settings),
                    [*secret_values(settings), *([key] if key else [])],
                    declared_recipes(settings),
                ),
            )
        )
        log.info("proxy for %s at http://%s:%d/v1", ", ".join(settings.model_names()), url_host(host), port)
        here, pages, with_key = local_url(host, port), settings.proxy.pages, await has_keys(project)

        def log_ready() -> None:
            if worker is None or worker.number == 1:
                for line in describe_ready(here, settings.model_names()[0], pages=pages, with_key=with_key):
                    log.info("%s", line)

        second_listener: SecondListener | None = None
        if peers is not None:
            second_listener = WorkerSocket(
                peers.socket_path(peers.own), figures=app.metrics.text, cancel=app.background.cancel
            ).open
        stop_timeout_s = settings.proxy.stop_timeout_s
        await serve(app, sock, stop_timeout_s=stop_timeout_s, second_listener=second_listener, ready=log_ready)
    finally:
        sock.close()  # the server does too, unless it stopped before it started
        await pages_store.close()
        await store.close()
