"""Whose call is this: the run it belongs to, how that is known, and the version that serves it.

Owns: the order of evidence, and that a run stays on its version. Refuses: guessing on a system and a user message
alone: a group's first turns are identical by design.

The order, strongest first. Each call records its source and how sure it is:

    path, key, header   the caller named the run                                              stated
    session_header      a vendor's header names the session (`proxy.attribution.hints`)                   stated
    response_id         previous_response_id is one that we issued                            exact
    tool_call_id        an id that we issued comes back in the history                        exact
    metadata            the body names the session                                            stated
    retry               an SDK sends again what was not answered                              exact, or ambiguous
    prompt_cache_key    … or a name that is shared: it tells runs apart that are equal so far exact
    lineage             the history ends in a turn that we sampled                            exact, or ambiguous
    trace               no more than the trace is known                                       hint
    new                 a conversation without a past                                         new

Ids belong to a project: they correlate, and never authorise. Only own runs are found (`KeyAccess`: the runs of the
caller's key and its family, and those that no key made); who states the address of another key's is refused. What is
ambiguous, or a hint, is recorded and not trained. A named session may hold several runs: a call goes to the run of the
session that it goes on from, and a conversation that goes on from none begins a new run there
(`recorder.capture.lookups.client_sessions` has the exceptions). A session that is named is never left: a history that
another session sampled does not bring a call there. A name that more runs share than anybody's conversation has tells
no more than a prompt_cache_key.
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

Answered = tuple[ParentCall, TrajectoryRef]  # a sampled choice, and the run in which calls go on from it


@dataclass(frozen=True, slots=True)
class AttributedCall:
    """A call with its run and its engine. `no_route`: why it has none now; a provider's model has neither."""

    attribution: Attribution
    route: Route | None
    no_route: NoReplica | None = None


class Attributor:
    """Places calls. One an app."""

    def __init__(self, project_id: str, recorder: Recorder, versions: ServiceRouter) -> None:
        self._project_id = project_id
        self._recorder = recorder
        self._versions = versions

    async def place(
        self, target: Target | None, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints = NO_HINTS
    ) -> AttributedCall:
        """Find or open the run, and route the call to an engine; without a target to none. Raises StoreError.

        NoReplica is raised for an alias that has no version at all, Forbidden for the address of another key's run.
        """
        attribution = await self._attribute(target, stated, request, hints)
        if hints.sub_agent:
            attribution = replace(attribution, turn_kind=CallKind.SUB)
        ref = attribution.trajectory
        whose = stated.address.whose
        traces = [str(hint) for hint in (*hints.of(HintKind.SPAN), *hints.of(HintKind.TRACE))]
        if traces and whose.owns(ref.made_by):
            self._recorder.find.note_traces(self._project_id, traces, ref.id, whose)
        if target is None:
            return AttributedCall(attribution, None)
        try:
            route = self._versions.route(target.alias, ref.version_id, target.version)
        except NoReplica as e:
            return AttributedCall(attribution, None, e)
        if route.moved:
            await self._versions.moved_away(ref.id, route.version.id)
            self._recorder.repinned(ref.id, route.version.id)
        return AttributedCall(attribution, route)

    async def _attribute(
        self, target: Target | None, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints
    ) -> Attribution:
        address = stated.address
        answered = await self._answered(request, address.whose)
        if address.trajectory is not None and stated.source is not None:
            ref = await self._at(target, stated, request)
            if answered is not None and answered[1].id == ref.id:
                return Attribution(stated.source, Confidence.STATED, ref, answered[0])
            parent = await self._recorder.find.parent_in(ref, request.messages)
            return Attribution(stated.source, Confidence.STATED, ref, parent)
        found, session = await self._find(stated, request, hints, answered)
        if found.trajectory is not None:
            return Attribution(found.source, found.confidence, found.trajectory, found.parent)
        if address.group is not None and stated.source is not None:
            ref = await self._at(target, stated, request, session)
            return Attribution(stated.source, Confidence.STATED, ref)
        ref = self._recorder.new_trajectory(address, self._offer(target, str(random.random()), address), session)
        # What looks like several runs at once is recorded in one of its own, and stays marked as what it is.
        source, confidence = (found.source, found.confidence) if found.source != "none" else ("new", Confidence.NEW)
        return Attribution(source, confidence, ref)

    async def _answered(self, request: RecordedRequest, whose: KeyAccess) -> Answered | None:
        """The answer of ours that a request says it goes on from, and its run."""
        if request.previous_response_id is None:
            return None
        return await self._recorder.find.answered(self._project_id, request.previous_response_id, whose)

    async def _find(
        self, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints, answered: Answered | None
    ) -> tuple[Resolution, str | None]:
        """The run that a call goes on with, and the session under which it is found, or a new one is made."""
        if hints.found:
            return await self._find_hinted(stated, request, hints, answered)
        if answered is not None:
            return _going_on(answered), None
        whose = stated.address.whose
        return await self._recorder.find.run(self._project_id, request.messages, request, whose), None

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
            return _going_on(answered), None
        whose = stated.address.whose
        found = await self._recorder.find.issued(self._project_id, request.messages, whose)
        if found is not NOTHING_FOUND:
            return found, None
        of_body = hints.session(of_header=False)
        if named is None and of_body is not None:
            within = await self._in_session(of_body, stated, request, hints)
            if within is not None:
                return within, str(of_body)
        return await self._find_loosely(request, hints, whose, [h for h in (named, of_body) if h is not None])

    async def _find_loosely(
        self, request: RecordedRequest, hints: AttributionHints, whose: KeyAccess, shared: list[Hint]
    ) -> tuple[Resolution, str | None]:
        """By what is no proof of a run alone: a retry, the history, names that many runs may share, a trace."""
        names = {str(hint): hint.source for hint in (*shared, *hints.of(HintKind.LOOSE))}
        traces = [str(hint) for hint in hints.of(HintKind.TRACE)]
        found = await self._recorder.find.retried(self._project_id, request, whose)
        if found is NOTHING_FOUND:
            found = await self._recorder.find.lineage(self._project_id, request.messages, names, traces, whose)
        if found is NOTHING_FOUND:
            found = await self._recorder.find.traced(self._project_id, traces, request.messages, whose)
        return found, next(iter(names), None)

    async def _in_session(
        self, named: Hint, stated: StatedAddress, request: RecordedRequest, hints: AttributionHints
    ) -> Resolution | None:
        found = await self._recorder.find.in_session(
            self._project_id,
            str(named),
            stated.address.group,
            request,
            sub_agent=hints.sub_agent,
            whose=stated.address.whose,
        )
        return replace(found, source=named.source) if found is not None and found.source == "session" else found

    async def _at(
        self, target: Target | None, stated: StatedAddress, request: RecordedRequest, session: str | None = None
    ) -> TrajectoryRef:
        address = stated.address
        offered = self._offer(target, address.group or address.trajectory or "", address)
        try:
            return await self._recorder.trajectory_at(
                self._project_id, _alias_id(target), address, request, offered, session
            )
        except NotOwner as e:
            raise Forbidden(str(e)) from e

    def _offer(self, target: Target | None, key: str, address: Address) -> str | None:
        if target is None:
            return None
        if target.version is not None:
            return target.version.id
        # who measures wants the live version, and only runs of this purpose are compared
        may_hold = address.group is None and address.purpose is Purpose.TRAIN
        return self._versions.offer(target.alias, key, may_hold=may_hold)


def _alias_id(target: Target | None) -> str | None:
    return target.alias.id if target is not None else None


def _going_on(answered: Answered) -> Resolution:
    return Resolution("response_id", Confidence.EXACT, *answered)
