"""The proxy as a process of its own: -m tests.proxy.proxy_child PORT URL DATA [STOP_TIMEOUT_S].

For tests that measure its memory, and for those that end it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from proxy.settings.sections import ProxySettings
from proxy.supervision.app import AppParts, create_app
from proxy.supervision.serve import serve
from proxy.supervision.sockets import listen
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.proxy.running import ALIAS, BASE, PROJECT


async def main(port: int, engine_url: str, data: str, stop_timeout_s: float) -> None:
    settings, recording = ProxySettings(), RecorderSettings()
    store = await open_store(Path(data), recording, migrate=True)
    await ensure_alias(Project(store, PROJECT), ALIAS, BASE, "fingerprint")
    await report_replica(
        Project(store, PROJECT),
        engine_url,
        base_model=BASE,
        base_fingerprint="fingerprint",
        state="up",
        detail=None,
        loaded=[BASE],
    )
    recorder, versions = Recorder(store, recording), ServiceRouter(Project(store, PROJECT), settings)
    app = create_app(AppParts(Project(store, PROJECT), settings, recording, recorder, versions))
    await serve(app, listen("127.0.0.1", port), stop_timeout_s=stop_timeout_s)
    await store.close()


if __name__ == "__main__":
    port, engine_url, data, *more = sys.argv[1:]
    asyncio.run(main(int(port), engine_url, data, float(more[0]) if more else 30.0))
