"""One generating call while it runs: its facts, and how it becomes a recorded call.

Owns: the facts of a call, and the parts that calls of every format share. Refuses: the order of the steps
(`proxy.serving.calls`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from proxy.admission.address import StatedAddress
from proxy.admission.auth import Caller
from proxy.attribution.hints import AttributionHints
from proxy.dialects.base import Answer, CallReader, RecordableAnswer
from proxy.engine.client import Client
from proxy.engine.providers import Provider, Providers
from proxy.errors import CallerError
from proxy.http.asgi import RawHeaders
from proxy.http.shutdown import Shutdown
from proxy.metrics import Metrics
from proxy.serving.continuity import ContinuedPrompt, Continuity
from proxy.settings.sections import ProxySettings
from proxy.versions.routing import Route, ServiceRouter, Target
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    CLIENT,
    DROPPED_ITEMS,
    DROPPED_TOOLS,
    ENGINE,
    UNATTRIBUTED,
    Attribution,
    RecordedCall,
    RecordedRequest,
    TrajectoryRef,
)
from recorder.settings import RecorderSettings
from recorder.states import CallState, Purpose

PLAINLY: Final = "offered_plainly"  # in a call's `response_meta`: features that the engine did not enforce
REPLACED: Final = "sampling_override"  # … and the sampling values that replaced the client's


@dataclass(frozen=True, slots=True)
class DeferredAttribution:
    """Why a call has no attribution yet: the store is away, and says later which trajectory it belongs to."""

    known: TrajectoryRef | None  # the trajectory that is known without the store, whose version serves the call
    named: bool  # the caller named that trajectory


@dataclass(slots=True)
class RunningCall:
    """One call while it runs."""

    caller: Caller
    stated: StatedAddress
    reading: CallReader
    target: Target | None  # None: another provider's model
    answer: Answer
    hints: AttributionHints
    provider: Provider | None = None  # asked instead of an engine
    client: str | None = None  # the product that its User-Agent names
    waited_s: float = 0.0  # how long it has waited for the store
    id: str = field(default_factory=lambda: new_id("call"))
    started_at: float = field(default_factory=time.time)
    attribution: Attribution | None = None  # None: it cannot be recorded, or not yet
    deferred: DeferredAttribution | None = None  # set if it is attributed after its end
    route: Route | None = None
    continued: ContinuedPrompt | None = None  # None: token continuity is off
    http_status: int | None = None
    streaming: bool = False  # the headers of the stream were sent
    body: bytes = b""  # a whole answer, for the client
    failure: CallerError | None = None  # the client's error instead
    error: str | None = None  # the recorded reason
    fell_back: str | None = None  # why the provider replaces the engine
    provided: dict[str, Any] = field(default_factory=dict)  # what is recorded about the provider
    first_token_at: float | None = None

    @property
    def trajectory(self) -> TrajectoryRef | None:
        """Its trajectory, as far as it is known."""
        if self.attribution is not None:
            return self.attribution.trajectory
        return self.deferred.known if self.deferred is not None else None

    @property
    def purpose(self) -> Purpose | None:
        """The purpose of its trajectory; None if it is not recorded."""
        if self.attribution is None and self.deferred is None:
            return None
        return self.trajectory.purpose if self.trajectory is not None else self.stated.address.purpose

    def headers(self) -> RawHeaders:
        """Return the `x-hone-*` headers of the answer."""
        raw = [(b"x-hone-call", self.id.encode())]
        if self.attribution is not None:
            raw.append((b"x-hone-trajectory", self.attribution.trajectory.id.encode()))
        elif (known := self.trajectory) is not None and self.deferred is not None and self.deferred.named:
            raw.append((b"x-hone-trajectory", known.id.encode()))
        if self.route is not None:
            raw.append((b"x-hone-version", self.route.version.name.encode()))
        if self.provider is not None and self.fell_back is not None:
            raw.append((b"x-hone-fallback", self.provider.name.encode()))
        if left_out := self.reading.request.dropped_tools:
            raw.append((b"x-hone-left-out-tools", ", ".join(dict.fromkeys(left_out)).encode()))
        if self.reading.unenforced:
            raw.append((b"x-hone-plainly", ", ".join(self.reading.unenforced).encode()))
        if self.reading.replaced:
            values = ", ".join(f"{name}={value:g}" for name, value in self.reading.replaced.items())
            raw.append((b"x-hone-sampling", values.encode()))
        return raw

    def served_by(self) -> str:
        """Return the version or the provider's model that answered, for the metrics."""
        if self.provider is not None:
            return self.provider.name
        return self.route.version.name if self.route is not None else "none"

    def turn(self, project_id: str, state: CallState, sampled: RecordableAnswer) -> RecordedCall:
        """Return the recorded call."""
        target, route = self.target, self.route
        return RecordedCall(
            call_id=self.id,
            project_id=project_id,
            address=self.stated.address,
            attribution=self.attribution or UNATTRIBUTED,
            request=self.reading.request,
            state=state,
            alias_id=target.alias.id if target is not None else None,
            version_id=route.version.id if route is not None else None,
            base_fingerprint=route.base_fingerprint if route is not None else None,
            prompt_token_ids=sampled.prompt_token_ids,
            choices=sampled.choices,
            usage=sampled.usage,
            response_meta=self._meta(sampled),
            http_status=self.http_status,
            error=self.error,
            started_at=self.started_at,
            first_token_at=self.first_token_at,
            finished_at=None if state is CallState.OPEN else time.time(),
            issued_ids=sampled.issued_ids,
            engine_url=self._kept_engine(),
        )

    def _kept_engine(self) -> str | None:
        """The engine that the trajectory stays on from now on: the one that answered."""
        if self.route is None or not self.route.stays or self.http_status != HTTPStatus.OK:
            return None
        return self.route.replica_url

    def _meta(self, sampled: RecordableAnswer) -> Mapping[str, Any] | None:
        """Return what is recorded of an answer besides its choices; for a provider, its name and whether it was a
        fallback.
        """
        meta = dict(sampled.response_meta or {})
        if (request := self.reading.request).dropped_tools or request.dropped_items:
            meta |= dropped_parts(request)
        if self.client is not None:
            meta[CLIENT] = self.client
        if self.provider is None:
            if self.route is not None:
                meta[ENGINE] = self.route.replica_url
            continued = self.continued.meta(sampled.prompt_token_ids) if self.continued is not None else {}
            return {**meta, **continued, **self._freed()} or None
        stood_in = {"fallback": True, "fallback_reason": self.fell_back} if self.fell_back is not None else {}
        return {**meta, **self.provided, **stood_in}

    def _freed(self) -> dict[str, Any]:
        """Return where Hone changed the request so that the call can be trained on."""
        unenforced, replaced = self.reading.unenforced, self.reading.replaced
        changes: dict[str, Any] = {PLAINLY: list(unenforced)} if unenforced else {}
        return changes | ({REPLACED: dict(replaced)} if replaced else {})


def dropped_parts(request: RecordedRequest) -> dict[str, list[str]]:
    """Return what the model did not get: the types of dropped tools, and of dropped items of their work."""
    named = {DROPPED_TOOLS: request.dropped_tools, DROPPED_ITEMS: request.dropped_items}
    return {name: list(dict.fromkeys(types)) for name, types in named.items() if types}


@dataclass(frozen=True, slots=True)
class ServingParts:
    """What calls of every format are served with. One per app."""

    project_id: str
    settings: ProxySettings
    recorder_settings: RecorderSettings
    recorder: Recorder
    versions: ServiceRouter
    client: Client
    providers: Providers
    metrics: Metrics
    stop: Shutdown
    continuity: Continuity | None = None
    overrides: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # alias → sampling values, as of now
