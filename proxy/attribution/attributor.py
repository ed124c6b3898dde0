"""Attribution of a call: its trajectory, the evidence for that, and the version that serves it.

Owns: the order of evidence, and keeping a trajectory on its version and its engine. Refuses: guessing by a system and a
user message only: the first turns of a group are identical by design.

The order, strongest first. Each call records its source and its confidence:

   path, key, header   the caller named the trajectory                                           stated
   ask_again           a person asks a recorded call again, which makes a trajectory of its own   stated
   session_header      a vendor's header names the session (`proxy.attribution.hints`)           stated
   response_id         previous_response_id is an id that Hone issued                            exact
   tool_call_id        the history holds an id that Hone issued                                  exact
   metadata            the body names the session                                                stated
   retry               an SDK repeats a request that was not answered                            exact, or ambiguous
   prompt_cache_key    a shared name that distinguishes trajectories which are equal so far      exact
   lineage             the history ends in an answer that Hone recorded                          exact, or ambiguous
   similar             so it does apart from system messages, or the history is a part of one    exact, or ambiguous
   trace               only the trace is known                                                   hint
   new                 a conversation without a history                                          new

Ids belong to a project: they correlate, and never authorise. Only trajectories that the caller may use are found
(`KeyAccess`: those of the caller's key and its family, and those made without a key); the address of another key's
trajectory is refused. Ambiguous calls and hints are recorded and not trained on. A named session may hold several
trajectories: a call joins the one that its history continues, and a conversation that continues none begins a new one
(`recorder.capture.lookups.client_sessions` has the exceptions). A call never leaves its named session, even if another
session sampled its history. A name that more trajectories share than a real conversation has counts as a
prompt_cache_key.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from proxy.admission.address import StatedAddress
from proxy.attribution.hints import NO_HINTS, AttributionHints, Hint, HintKind
from proxy.errors import Forbidden, NoReplica
from proxy.versions.routing import Route, ServiceRouter, Target
from recorder.capture.recorder import Recorder
from recorder.capture.resolver import NOTHING_FOUND, Resolution
from recorder.errors import NotOwner
from recorder.messages.calls import Address, Attribution, KeyAccess, ParentCall, RecordedRequest, TrajectoryRef
from recorder.states import CallKind, Confidence, Purpose

Answered = tuple[ParentCall, TrajectoryRef]  # a sampled choice, and the trajectory that continues it


@dataclass(frozen=True, slots=True)
class AttributedCall:
    """A call with its trajectory and engine. `no_route`: why it has no engine now; a provider's model has neither."""

    attribution: Attribution
    route: Route | None
    no_route: NoReplica | None = None


class Attributor:
    """Attributes calls. One per app."""

    def __init__(self, project_id: str, recorder: Recorder, versions: ServiceRouter) -> None:
        self._project_id = project_id
        self._recorder = recorder
        self._versions = versions

    async def place(
        self, target: Target | None, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints = NO_HINTS
    ) -> AttributedCall:
        """Find or create the call's trajectory, and choose its engine; no engine without a target.

        Raises StoreError, NoReplica for an alias without any version, and Forbidden for the address of another key's
        trajectory.
        """
        await self._recorder.prepare(self._project_id, request)
        attribution = await self._attribute(target, stated, request, hints)
        if target is None:
            return AttributedCall(attribution, None)
        ref = attribution.trajectory
        if self._versions.has_choice():
            ref = await self._recorder.find.with_stored_engine(ref, attribution.parent)
        try:
            route = self._versions.route_trajectory(target, ref)
        except NoReplica as e:
            return AttributedCall(attribution, None, e)
        if route.stays and ref.engine_url is None:
            self._recorder.keep_engine(ref.id, route.replica_url)
            ref = ref.on_engine(route.replica_url)
        if route.moved:
            await self._versions.moved_away(ref.id, route.version.id)
            self._recorder.update_pin(ref.id, route.version.id)
        return AttributedCall(attribution.to(ref), route)

    def remembered(self, stated: StatedAddress, request: RecordedRequest) -> tuple[TrajectoryRef, bool] | None:
        """Return the trajectory that is known without the store, and whether the caller named it.

        Raises Forbidden for the address of another key's trajectory.
        """
        try:
            return self._recorder.find.remembered(self._project_id, stated.address, request.messages)
        except NotOwner as e:
            raise Forbidden(str(e)) from e

    async def attribute_later(
        self,
        target: Target | None,
        stated: StatedAddress,
        request: RecordedRequest,
        hints: AttributionHints,
        answered_by: str | None,
    ) -> Attribution:
        """Attribute a call that was answered, by the version with this id, while the store was away.

        A call that named another key's trajectory gets one of its own, and is ambiguous. Raises StoreError.
        """
        try:
            return await self._attribute(target, stated, request, hints, answered_by)
        except Forbidden:
            ref = self._recorder.new_trajectory(replace(stated.address, trajectory=None, group=None), answered_by)
            return Attribution(stated.source or "none", Confidence.AMBIGUOUS, ref)

    async def _attribute(
        self,
        target: Target | None,
        stated: StatedAddress,
        request: RecordedRequest,
        hints: AttributionHints,
        answered_by: str | None = None,
    ) -> Attribution:
        attribution = await self._by_evidence(target, stated, request, hints, answered_by)
        if hints.sub_agent:
            attribution = replace(attribution, call_kind=CallKind.SUB)
        if not hints.found:
            return attribution
        ref, access = attribution.trajectory, stated.address.access
        traces = [str(hint) for hint in (*hints.of(HintKind.SPAN), *hints.of(HintKind.TRACE))]
        if traces and access.owns(ref.made_by):
            self._recorder.find.note_traces(self._project_id, traces, ref.id, access)
        return attribution

    async def _by_evidence(
        self,
        target: Target | None,
        stated: StatedAddress,
        request: RecordedRequest,
        hints: AttributionHints,
        answered_by: str | None,
    ) -> Attribution:
        address = stated.address
        previous = await self._answered(request, address.access)
        if address.trajectory is not None and stated.source is not None:
            ref = await self._at(target, stated, request, answered_by)
            if previous is not None and previous[1].id == ref.id:
                return Attribution(stated.source, Confidence.STATED, ref, previous[0])
            parent = await self._recorder.find.parent_in(ref, request.messages)
            return Attribution(stated.source, Confidence.STATED, ref, parent)
        resolution, session = await self._find(stated, request, hints, previous)
        if resolution.trajectory is not None:
            return Attribution(resolution.source, resolution.confidence, resolution.trajectory, resolution.parent)
        if address.group is not None and stated.source is not None:
            ref = await self._at(target, stated, request, answered_by, session)
            return Attribution(stated.source, Confidence.STATED, ref)
        offered = answered_by or self._offer(target, str(random.random()), address)
        ref = self._recorder.new_trajectory(address, offered, session)
        # An ambiguous call gets a trajectory of its own, and keeps its confidence.
        source, confidence = (
            (resolution.source, resolution.confidence) if resolution.source != "none" else ("new", Confidence.NEW)
        )
        return Attribution(source, confidence, ref)

    async def _answered(self, request: RecordedRequest, access: KeyAccess) -> Answered | None:
        """Return the recorded answer that a request names as its previous response, and its trajectory."""
        if request.previous_response_id is None:
            return None
        return await self._recorder.find.answered(self._project_id, request.previous_response_id, access)

    async def _find(
        self, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints, answered: Answered | None
    ) -> tuple[Resolution, str | None]:
        """Return the trajectory that a call continues, and the session under which it is found or created."""
        if hints.found:
            return await self._find_hinted(stated, request, hints, answered)
        if answered is not None:
            return _continuation(answered), None
        access = stated.address.access
        return await self._recorder.find.run(self._project_id, request.messages, request, access), None

    async def _find_hinted(
        self, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints, answered: Answered | None
    ) -> tuple[Resolution, str | None]:
        named = hints.session(of_header=True)
        if named is not None:
            if answered is not None and answered[1].session == str(named):
                return Resolution(named.source, Confidence.STATED, *answered), str(named)
            within = await self._in_session(named, stated, request, hints)
            if within is not None:
                return within, str(named)
        if answered is not None:
            return _continuation(answered), None
        access = stated.address.access
        resolution = await self._recorder.find.issued(self._project_id, request.messages, access)
        if resolution is not NOTHING_FOUND:
            return resolution, None
        of_body = hints.session(of_header=False)
        if named is None and of_body is not None:
            within = await self._in_session(of_body, stated, request, hints)
            if within is not None:
                return within, str(of_body)
        return await self._find_loosely(request, hints, access, [h for h in (named, of_body) if h is not None])

    async def _find_loosely(
        self, request: RecordedRequest, hints: AttributionHints, access: KeyAccess, shared: list[Hint]
    ) -> tuple[Resolution, str | None]:
        """Find by evidence that proves no trajectory by itself: a retry, the history, shared names, a trace."""
        names = {str(hint): hint.source for hint in (*shared, *hints.of(HintKind.LOOSE))}
        traces = [str(hint) for hint in hints.of(HintKind.TRACE)]
        resolution = await self._recorder.find.retried(self._project_id, request, access)
        if resolution is NOTHING_FOUND:
            resolution = await self._recorder.find.lineage(self._project_id, request.messages, names, traces, access)
        if resolution is NOTHING_FOUND:
            resolution = await self._recorder.find.similar(self._project_id, request.messages, access)
        if resolution is NOTHING_FOUND:
            resolution = await self._recorder.find.traced(self._project_id, traces, request.messages, access)
        return resolution, next(iter(names), None)

    async def _in_session(
        self, named: Hint, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints
    ) -> Resolution | None:
        resolution = await self._recorder.find.in_session(
            self._project_id,
            str(named),
            stated.address.group,
            request,
            sub_agent=hints.sub_agent,
            access=stated.address.access,
        )
        return (
            replace(resolution, source=named.source)
            if resolution is not None and resolution.source == "session"
            else resolution
        )

    async def _at(
        self,
        target: Target | None,
        stated: StatedAddress,
        request: RecordedRequest,
        answered_by: str | None,
        session: str | None = None,
    ) -> TrajectoryRef:
        address = stated.address
        named = target.version.id if target is not None and target.version is not None else None
        # a version that one caller names is no pin of the group, whose other members ask for the alias
        offered = None
        if named is None:
            offered = answered_by or self._offer(target, address.group or address.trajectory or "", address)
        own = named or answered_by
        try:
            return await self._recorder.trajectory_at(
                self._project_id, _alias_id(target), address, request, offered, session, own_version=own
            )
        except NotOwner as e:
            raise Forbidden(str(e)) from e

    def _offer(self, target: Target | None, key: str, address: Address) -> str | None:
        if target is None:
            return None
        if target.version is not None:
            return target.version.id
        # measurements need the live version, and only training trajectories are compared
        may_hold = address.group is None and address.purpose is Purpose.TRAIN
        return self._versions.offer(target.alias, key, may_hold=may_hold)


def _alias_id(target: Target | None) -> str | None:
    return target.alias.id if target is not None else None


def _continuation(answered: Answered) -> Resolution:
    return Resolution("response_id", Confidence.EXACT, *answered)
