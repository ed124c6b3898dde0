"""The whole proxy on a real port before a fake engine: real store, real recorder, real versions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import httpx

from proxy.notifications.target import Target
from proxy.programs.service import ProgramService
from proxy.settings.hone import HoneSettings
from proxy.settings.mcp import McpServerSettings
from proxy.settings.sections import ProxySettings, ShadowSettings, Share
from proxy.supervision.app import AppParts, HoneApp, create_app
from proxy.supervision.serve import SecondListener, serve, settings_view
from proxy.supervision.sockets import listen
from proxy.versions.routing import ServiceRouter
from proxy.worker_ipc.peers import WorkerPeers
from proxy.worker_ipc.worker_socket import WorkerSocket
from recorder.capture.recorder import Recorder
from recorder.maintenance.export import raw_lines
from recorder.registry.aliases import AliasView, ensure_alias
from recorder.registry.replicas import report_replica
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.database import Project, Store
from tests.proxy.signatures import keep_signatures

PROJECT = "default"
# Reading a machine's certificates costs a client 40 ms, and nothing here speaks TLS.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ALIAS = "helpdesk"
BASE = "base-model"  # the engine's name of it, which no client may see
# For tests that look at no page: to register the pages takes two thirds of the time in which a proxy is made.
WITHOUT_PAGES = ProxySettings(port=0, pages=False)
keep_signatures()


class HasUrl(Protocol):
    """An engine."""

    @property
    def url(self) -> str:
        """Where it listens."""


@dataclass
class Proxy:
    """A running proxy."""

    url: str
    app: HoneApp
    store: Store
    versions: ServiceRouter
    recorder: Recorder
    alias: AliasView
    http: httpx.AsyncClient

    async def chat(
        self, *texts: str, path: str = "", headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Post a chat completion; texts are user and assistant turns in alternation."""
        return await self.http.post(f"{path}/v1/chat/completions", json=say(*texts, **more), headers=headers)

    async def events(self, *texts: str, path: str = "", **more: Any) -> list[dict[str, Any]]:
        """The events of a streamed chat completion; asserts that it ends with [DONE]."""
        answer = await self.chat(*texts, path=path, stream=True, **more)
        assert answer.status_code == 200, answer.text
        *events, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events if not event.startswith(":")]

    async def calls(self) -> list[dict[str, Any]]:
        """What was recorded, oldest first, as `hone export --format raw` prints it."""
        lines = [line async for line in raw_lines(Project(self.store, PROJECT))]
        return sorted(lines, key=lambda line: (line["started_at"], line["call_id"]))

    async def call(self) -> dict[str, Any]:
        """The one call that was recorded."""
        [call] = await self.calls()
        return call

    async def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        text = (await self.http.get("/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith((name + " ", name + "{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


def say(*texts: str, **more: Any) -> dict[str, Any]:
    """A request's body."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts or ("Where is order 4821?",))]
    return {"model": ALIAS, "messages": messages} | more


@contextlib.asynccontextmanager
async def serving(
    store: Store,
    engine: HasUrl,
    *,
    settings: ProxySettings | None = None,
    recording: RecorderSettings | None = None,
    base: str = BASE,
    fallbacks: Mapping[str, str] | None = None,
    reasoning_parser: str | None = None,
    mcp: Mapping[str, McpServerSettings] | None = None,
    overrides: Mapping[str, Mapping[str, float]] | None = None,
    origin: Mapping[str, str] | None = None,
    shadows: Mapping[str, ShadowSettings] | None = None,
    learn: LearnSettings | None = None,
    stop_timeout_s: float = 1,
    peers: WorkerPeers | None = None,
    process: str | None = None,
    declared: Collection[str] = (),
    share: Share = "split",
    notified: Target | None = None,
    programs: ProgramService | None = None,
) -> AsyncIterator[Proxy]:
    """A proxy that serves the alias from `engine` until the block ends. `peers`: as one of several workers. `declared`:
    aliases of the settings. `origin`: where settings come from; given, the proxy shows its settings."""
    settings, recording = settings or ProxySettings(port=0), recording or RecorderSettings()
    alias = await ensure_alias(Project(store, PROJECT), ALIAS, base, "fingerprint")
    await report_replica(
        Project(store, PROJECT),
        engine.url,
        base_model=base,
        base_fingerprint="fingerprint",
        state="up",
        detail=None,
        loaded=[base],
    )
    recorder = Recorder(store, recording, process=process)
    sock = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    versions = ServiceRouter(Project(store, PROJECT), settings, proxy_url=url, declared=declared)
    more: dict[str, Any] = {"fallbacks": fallbacks or {}, "reasoning_parser": reasoning_parser, "mcp": mcp or {}}
    of_aliases = {name: {"sampling": {"override": values}} for name, values in (overrides or {}).items()}
    given = {"learn": learn or LearnSettings(), "aliases": of_aliases, "engine": {"name": ALIAS}}
    follower = SettingsFollower(Project(store, PROJECT), HoneSettings.model_validate(given))
    more |= {"shadows": shadows or {}, "peers": peers, "follower": follower, "background": (follower.running,)}
    more |= {"share": share, "notified": notified, "programs": programs or ProgramService(None)}
    if origin is not None:
        more["shown_settings"] = partial(settings_view, follower, origin)
    pages_store = store.limited(settings.pages_timeout_s)
    app = create_app(
        AppParts(Project(store, PROJECT), settings, recording, recorder, versions, pages_store=pages_store, **more)
    )
    second_listener: SecondListener | None = None
    if peers is not None:
        second_listener = WorkerSocket(
            peers.socket_path(peers.own), figures=app.metrics.text, cancel=app.background.cancel
        ).open
    running = asyncio.ensure_future(serve(app, sock, stop_timeout_s=stop_timeout_s, second_listener=second_listener))
    try:
        # closed before the server stops, which waits for connections
        async with httpx.AsyncClient(base_url=url, timeout=20, verify=NO_TLS) as http:
            await _answers(http, running)
            yield Proxy(url, app, store, versions, recorder, alias, http)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        sock.close()  # the server does, unless it did not start
        await pages_store.close()


async def _answers(http: httpx.AsyncClient, running: asyncio.Future[None]) -> None:
    """The socket listens already, so the first request waits until it is served, or until serving failed."""
    asked = asyncio.ensure_future(http.get("/healthz"))
    either: set[asyncio.Future[Any]] = {asked, running}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        asked.cancel()
        running.result()
    (await asked).raise_for_status()
