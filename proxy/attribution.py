"""Whose call is this: the run it belongs to, how that is known, and the version that serves it.

Owns: the order of evidence (path, key, headers; then response ids and tool-call ids that we issued; then exact lineage;
else a new run) and that a run stays on its version. Refuses: guessing on a system and a user message alone: a group's
first turns are identical by design.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from proxy.address import Stated
from proxy.errors import NoReplica
from proxy.versions import InService, Route, Target
from recorder.recorder import Recorder
from recorder.states import Confidence
from recorder.turns import Attribution, Parent, Request, TrajectoryRef


@dataclass(frozen=True, slots=True)
class Placed:
    """A call with its run and its engine. `no_route`: why it has none now; a provider's model has neither."""

    attribution: Attribution
    route: Route | None
    no_route: NoReplica | None = None


class Attributor:
    """Places calls. One an app."""

    def __init__(self, project_id: str, recorder: Recorder, versions: InService) -> None:
        self._project_id = project_id
        self._recorder = recorder
        self._versions = versions

    async def place(self, target: Target | None, stated: Stated, request: Request) -> Placed:
        """Find or open the run, and route the call to an engine; without a target to none. Raises StoreError.

        NoReplica is raised for an alias that has no version at all.
        """
        attribution = await self._attribute(target, stated, request)
        if target is None:
            return Placed(attribution, None)
        ref = attribution.trajectory
        try:
            route = self._versions.route(target.alias, ref.version_id, target.version)
        except NoReplica as e:
            return Placed(attribution, None, e)
        if route.moved:
            await self._versions.moved_away(ref.id, route.version.id)
            self._recorder.repinned(ref.id, route.version.id)
        return Placed(attribution, route)

    async def _attribute(self, target: Target | None, stated: Stated, request: Request) -> Attribution:
        address = stated.address
        answered = await self._answered(request)
        if address.trajectory is not None and stated.source is not None:
            ref = await self._at(target, stated, request)
            if answered is not None and answered[1].id == ref.id:
                return Attribution(stated.source, Confidence.STATED, ref, answered[0])
            parent = await self._recorder.parent_in(ref, request.messages)
            return Attribution(stated.source, Confidence.STATED, ref, parent)
        if answered is not None:
            return Attribution("response_id", Confidence.EXACT, answered[1], answered[0])
        found = await self._recorder.find_parent(self._project_id, _alias_id(target), request.messages, request)
        if found.trajectory is not None:
            return Attribution(found.source, found.confidence, found.trajectory, found.parent)
        if address.group is not None and stated.source is not None:
            return Attribution(stated.source, Confidence.STATED, await self._at(target, stated, request))
        ref = self._recorder.new_trajectory(address, self._offer(target, str(random.random())))
        # What looks like several runs at once is recorded in one of its own, and stays marked as what it is.
        confidence = found.confidence if found.source != "none" else Confidence.NEW
        return Attribution(found.source if found.source != "none" else "new", confidence, ref)

    async def _answered(self, request: Request) -> tuple[Parent, TrajectoryRef] | None:
        """The answer of ours that a request says it goes on from, and its run."""
        if request.previous_response_id is None:
            return None
        return await self._recorder.answered(self._project_id, request.previous_response_id)

    async def _at(self, target: Target | None, stated: Stated, request: Request) -> TrajectoryRef:
        address = stated.address
        offered = self._offer(target, address.group or address.trajectory or "")
        return await self._recorder.trajectory_at(self._project_id, _alias_id(target), address, request, offered)

    def _offer(self, target: Target | None, key: str) -> str | None:
        if target is None:
            return None
        return target.version.id if target.version is not None else self._versions.offer(target.alias, key)


def _alias_id(target: Target | None) -> str | None:
    return target.alias.id if target is not None else None
