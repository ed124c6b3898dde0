"""The proxy as a process of its own, for tests that measure its memory: -m tests.proxy.proxy_child PORT URL DATA."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from proxy.programs.app import Deps, create_app
from proxy.programs.server import listen, serve
from proxy.settings.sections import ProxySettings
from proxy.versions.in_service import InService
from recorder.capture.recorder import Recorder
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.migrate import open_store
from tests.proxy.running import ALIAS, BASE, PROJECT


async def main(port: int, engine_url: str, data: str) -> None:
    settings, recording = ProxySettings(), RecorderSettings()
    store = await open_store(Path(data), recording, migrate=True)
    await ensure_alias(store, PROJECT, ALIAS, BASE, "fingerprint")
    await report_replica(
        store,
        PROJECT,
        engine_url,
        base_model=BASE,
        base_fingerprint="fingerprint",
        state="up",
        detail=None,
        loaded=[BASE],
    )
    recorder, versions = Recorder(store, recording), InService(store, PROJECT, settings)
    await serve(create_app(Deps(PROJECT, settings, recording, store, recorder, versions)), listen("127.0.0.1", port))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
