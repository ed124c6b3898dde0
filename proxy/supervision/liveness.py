"""The health routes `/healthz`, `/health` (is the process alive?) and `/readyz` (should it get requests?)."""

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
    """The health routes, as raw ASGI apps."""

    versions: ServiceRouter
    recorder: Recorder
    has_aliases: bool = False  # declared in settings; the store may not have them yet

    async def alive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Always 200, with the number of engines, the aliases, and whether calls can be recorded."""
        snapshot, trouble = self.versions.snapshot, self.recorder.trouble()
        health = {"status": "ok", "engines_up": len(snapshot.up()), "aliases": sorted(snapshot.aliases)}
        await send_json(send, health | {"recording": trouble is None} | ({"trouble": trouble} if trouble else {}))

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200, or 503 with the reasons if calls cannot be recorded or no engine is up."""
        why = self._unready()
        if not why:
            await send_json(send, {"status": "ready"})
        else:
            await respond(send, 503, orjson.dumps({"status": "not ready", "why": why}), JSON, [RETRY_AFTER])

    def _unready(self) -> list[str]:
        snapshot, trouble = self.versions.snapshot, self.recorder.trouble()
        why = [] if trouble is None else [f"nothing can be recorded: {trouble}"]
        # without an alias no engine is needed: all models are other providers'
        if (self.has_aliases or snapshot.aliases) and not snapshot.up():
            why.append("no engine is up")
        return why
