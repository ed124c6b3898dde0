"""What whoever watches this process asks: does it live, and should it be sent requests?

Owns: `/healthz`, `/health` and `/readyz`. Refuses: finding out; the recorder and the versions in service know.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from proxy.admission.replies import send_json
from proxy.http.asgi import JSON, Receive, Scope, Send, respond
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder

RETRY_AFTER = (b"retry-after", b"5")


@dataclass(frozen=True, slots=True)
class HealthRoutes:
    """Raw ASGI apps for these routes."""

    versions: ServiceRouter
    recorder: Recorder
    has_aliases: bool = False  # declared in the settings: the store may not know them yet

    async def alive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether this process serves: yes. What it serves with, and whether it records, is told beside it."""
        snapshot, trouble = self.versions.snapshot, self.recorder.trouble()
        told = {"status": "ok", "engines_up": len(snapshot.up()), "aliases": sorted(snapshot.aliases)}
        await send_json(send, told | {"recording": trouble is None} | ({"trouble": trouble} if trouble else {}))

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether requests should come here: 503 where nothing can be recorded, or no engine is up."""
        why = self._unready()
        if not why:
            await send_json(send, {"status": "ready"})
        else:
            await respond(send, 503, orjson.dumps({"status": "not ready", "why": why}), JSON, [RETRY_AFTER])

    def _unready(self) -> list[str]:
        snapshot, trouble = self.versions.snapshot, self.recorder.trouble()
        why = [] if trouble is None else [f"nothing can be recorded: {trouble}"]
        # without an alias there is no engine: all is other providers'
        if (self.has_aliases or snapshot.aliases) and not snapshot.up():
            why.append("no engine is up")
        return why
