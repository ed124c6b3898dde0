"""`hone serve`: the proxy as one process, put together from its parts.

Owns: which parts a serving process has and in which order they open and close. Refuses: what any of them does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxy.api.standing import Setting
from proxy.engine.command import engine_key, for_url
from proxy.errors import ConfigError
from proxy.programs.app import Deps, create_app
from proxy.programs.server import Beside, listen, serve
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import ProxySettings, base_name
from proxy.settings.showing import described, shown
from proxy.versions.controller import Controller
from proxy.versions.in_service import InService
from proxy.workers.door import Door
from proxy.workers.peers import Peers
from recorder.capture.recorder import Recorder
from recorder.holding.holders import holder_name
from recorder.holding.presence import PROXY, present
from recorder.search.filler import Filler
from recorder.store.folder import share_adapters
from recorder.store.migrate import open_store
from recorder.store.project import Project
from recorder.upkeep.sweeper import Sweeper

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Worker:
    """Which of several serving processes this one is, and the folder in which they meet."""

    number: int
    folder: Path


def require_models(settings: HoneSettings) -> None:
    """Raise ConfigError where nothing is named that could be served."""
    if not settings.declared_aliases() and not settings.proxy.models:
        raise ConfigError(
            "no model is named: give `--model NAME` (as the engine calls it), an alias [aliases.NAME] in hone.toml, "
            "a base model with `base` in [engine], or another provider's model in [[proxy.models]]."
        )


def shown_settings(settings: HoneSettings, origin: Mapping[str, str]) -> tuple[Setting, ...]:
    """The settings as the page of them shows them, by where each came from (`LoadedSettings.origin`)."""
    return tuple(
        Setting(key, shown(key, value), origin.get(key, "default"), about) for key, value, about in described(settings)
    )


def reached_at(proxy: ProxySettings, host: str, port: int) -> str:
    """Where other programs reach a proxy that listens there, without /v1."""
    return proxy.url or f"http://{for_url(host)}:{port}"


async def run(settings: HoneSettings, worker: Worker | None = None, *, origin: Mapping[str, str] | None = None) -> None:
    """Serve until told to stop (SIGINT, SIGTERM). Raises ConfigError, PortInUse, StoreError."""
    require_models(settings)
    aliases = settings.declared_aliases()
    peers = Peers(worker.folder, worker.number, settings.proxy.workers) if worker is not None else None
    sock = listen(settings.proxy.host, settings.proxy.port, shared=worker is not None)
    host, port = sock.getsockname()[:2]
    store = await open_store(settings.data, settings.recorder, migrate=True, project=settings.project)
    project = Project(store, settings.project)
    pages_store = store.limited(settings.proxy.pages_timeout_s)
    try:
        share_adapters(settings.data, settings.engine.adapter_group)
        key, owner = engine_key(settings.engine, settings.data), holder_name()
        versions = InService(
            project,
            settings.proxy,
            proxy_url=reached_at(settings.proxy, host, port),
            engine_key=key,
            proxy_id=owner,  # so that what a killed one held is seen to be free
        )
        recorder = Recorder(store, settings.recorder, process=owner)
        controller = Controller(
            project,
            versions,
            recorder,
            engine=settings.engine,
            proxy=settings.proxy,
            aliases=aliases,
            learn=settings.learn,
            default_base=base_name(settings.engine),
            engine_key=key,
        )
        app = create_app(
            Deps(
                project=project,
                settings=settings.proxy,
                recorder_settings=settings.recorder,
                recorder=recorder,
                versions=versions,
                background=(
                    partial(present, project, PROXY, owner, settings.recorder.lease_s),
                    Sweeper(project, settings.recorder, owner).running,
                    Filler(project, owner).running,
                    *((controller.running,) if aliases else ()),  # without an alias there is no engine
                ),
                fallbacks=settings.fallbacks(),
                overrides=settings.overrides(),
                shadows=settings.shadows(),
                reasoning_parser=settings.engine.reasoning_parser,
                learn=settings.learn,
                trainer=settings.trainer,
                has_aliases=bool(aliases),
                mcp=settings.mcp,
                peers=peers,
                pages_store=pages_store,
                shown_settings=shown_settings(settings, origin or {}),
            )
        )
        log.info("proxy for %s at http://%s:%d/v1", ", ".join(settings.model_names()), for_url(host), port)
        beside: Beside | None = None
        if peers is not None:
            beside = Door(peers.door(peers.own), figures=app.metrics.text, cancel=app.background.cancel).open
        await serve(app, sock, stop_timeout_s=settings.proxy.stop_timeout_s, beside=beside)
    finally:
        sock.close()  # the server does, but it may have been told to stop before it had begun
        await pages_store.close()
        await store.close()
