"""Trajectories in /hone/v1: create, end, give feedback, read, delete.

Owns: these routes. Each one that names a trajectory also works behind its address (`/g/<group>/t/<id>/hone/v1/done`),
with its key, and with `x-hone-trajectory`. Refuses: which trajectories a caller may change (`proxy.api.actions`).
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Response, delete, get, post
from litestar.params import FromQuery, JSONBody

from proxy.admission.address import NamedTrajectory
from proxy.admission.auth import Caller
from proxy.api.actions import HoneActions, own_trajectory_id, require_own, trajectory_id_at, write_feedback
from proxy.api.route_parts import (
    PROBLEMS,
    AnyRequest,
    BodyOptional,
    CallId,
    CreatedTrajectory,
    CreateTrajectory,
    DeletedTrajectories,
    EndedTrajectory,
    EndRequest,
    Id,
    Injected,
    NewFeedback,
    RecordedFeedback,
    caller_of,
    json_response,
    response_spec,
)
from proxy.errors import BadRequest, Forbidden, UnknownObject
from recorder.errors import NotFound
from recorder.ids import check_external, new_id
from recorder.maintenance import deletion
from recorder.messages.calls import Address
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.states import TrajectoryState
from recorder.store import sql
from recorder.store.database import Store
from recorder.views.trajectories.transcripts import find_owners, find_trajectory, load_trajectory, trajectory_of_call
from recorder.views.trajectory_detail.loader import build_detail, detail_json

_MERGE_S: Final = 5.0  # a deletion waits no longer for the bytes to leave a large index


@post("/hone/v1/trajectories", responses=PROBLEMS)
async def create_trajectory(hone: Injected, request: AnyRequest, data: JSONBody[CreateTrajectory]) -> CreatedTrajectory:
    """Create a trajectory: return its id, its address and its key. An existing one must belong to the caller."""
    caller = caller_of(request)
    run = NamedTrajectory(
        check_external(data.trajectory or new_id("run"), "trajectory"),
        check_external(data.group, "group") if data.group is not None else None,
    )
    if caller.run is not None:
        raise Forbidden("a trajectory's key cannot create trajectories: use a key of the project.")
    scopes = {scope for scope in (Scope.INFER, Scope.FEEDBACK) if caller.may(scope)}
    expires_at = await _now(hone.project.store) + data.expires_in_s if data.expires_in_s is not None else None
    family = await _family(hone, caller, run)
    key, secret = await keys.create_key(
        hone.project, f"trajectory {run}", scopes, str(run), expires_at, family, caller.key
    )
    path = f"g/{run.group}/t/{run.trajectory}" if run.group else f"t/{run.trajectory}"
    return CreatedTrajectory(
        trajectory=str(run.trajectory),
        group=run.group,
        base_url=f"{request.base_url}{path}/v1",
        api_key=secret,
        key_id=key.id,
    )


@post("/hone/v1/trajectories/{trajectory:str}/done", status_code=200, responses=PROBLEMS, operation_class=BodyOptional)
async def end_trajectory(
    hone: Injected, request: AnyRequest, trajectory: Id, data: JSONBody[EndRequest | None] = None
) -> EndedTrajectory:
    """End a trajectory. Ending it again changes nothing."""
    return await _end(hone, await _own(hone, request, trajectory), data)


@post("/hone/v1/done", status_code=200, responses=PROBLEMS, operation_class=BodyOptional)
async def end_addressed_trajectory(
    hone: Injected, request: AnyRequest, data: JSONBody[EndRequest | None] = None
) -> EndedTrajectory:
    """End the trajectory that the path, the key or a header names."""
    return await _end(hone, await _addressed(hone, request), data)


@post("/hone/v1/trajectories/{trajectory:str}/feedback", responses=PROBLEMS)
async def note_feedback(
    hone: Injected, request: AnyRequest, trajectory: Id, data: JSONBody[NewFeedback]
) -> RecordedFeedback:
    """Record feedback about a trajectory, or about one of its calls."""
    return await _note(hone, caller_of(request), await _own(hone, request, trajectory), data)


@post("/hone/v1/feedback", responses=PROBLEMS)
async def note_addressed_feedback(hone: Injected, request: AnyRequest, data: JSONBody[NewFeedback]) -> RecordedFeedback:
    """Record feedback about the trajectory that the body, the path, the key or a header names."""
    call_id, named = data.call_id or data.inference_id, data.trajectory_id or data.episode_id
    if named is not None:
        return await _note(hone, caller_of(request), await _own(hone, request, named), data)
    if call_id is None:
        return await _note(hone, caller_of(request), await _addressed(hone, request), data)
    of_call = await trajectory_of_call(hone.project, call_id)
    if of_call is None:
        raise UnknownObject(
            f"no call {call_id[:200]!r}: use the id that an answer has in x-hone-call.", param="call_id"
        )
    return await _note(hone, caller_of(request), await _own(hone, request, of_call), data)


@get("/hone/v1/trajectories/{trajectory:str}", responses=response_spec(200, dict[str, Any]))
async def show_trajectory(
    hone: Injected, trajectory: Id, group: FromQuery[str | None] = None, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """Return one trajectory with its calls, its `conversation` message by message, its `outcome`, its `timeline`, and
    `follow_ups`: what came after its answers. `tokens` adds the exact ids and logprobs."""
    trajectory_id = await find_trajectory(hone.project, trajectory, group)
    view = await load_trajectory(hone.project.store, trajectory_id, with_tokens=tokens)
    return json_response(detail_json(await build_detail(hone.project.store, view)))


@get("/hone/v1/calls/{call:str}", responses=response_spec(200, dict[str, Any]))
async def show_call(hone: Injected, call: CallId, tokens: FromQuery[bool] = False) -> Response[bytes]:
    """Return one call, its request and its answer. `tokens` adds the exact ids and logprobs."""
    home = await trajectory_of_call(hone.project, call)
    if home is None:
        raise UnknownObject(f"no call {call[:200]!r}: use the id that an answer has in x-hone-call.")
    view = await load_trajectory(hone.project.store, home, with_tokens=tokens)
    return json_response(next(one for one in view.calls if one.id == call))


@delete("/hone/v1/trajectories/{trajectory:str}", status_code=200, responses=PROBLEMS)
async def delete_trajectory(hone: Injected, trajectory: Id, group: FromQuery[str | None] = None) -> DeletedTrajectories:
    """Delete a trajectory permanently: its calls, messages, tokens, scores and feedback. It must have ended."""
    ids = await deletion.trajectory_ids(hone.project, trajectory, group)
    try:
        gone = [await deletion.delete_trajectory(hone.project, id_) for id_ in ids]
    finally:
        erased = await deletion.erase_deleted_words(hone.project.store, merge_s=_MERGE_S)
    return DeletedTrajectories(
        trajectory_ids=[one.trajectory_id for one in gone], calls=sum(g.calls for g in gone), log_erased=erased
    )


async def _own(hone: HoneActions, request: AnyRequest, named: str) -> str:
    return await own_trajectory_id(hone, caller_of(request), named)


async def _addressed(hone: HoneActions, request: AnyRequest) -> str:
    """Return the internal id of the trajectory that the path, the key or a header names."""
    address: Address = request.scope["hone.stated"].address  # type: ignore[typeddict-item]  # put there by the gate
    if address.trajectory is None:
        raise BadRequest(
            "no trajectory is named: use /t/<id>/hone/v1/…, /hone/v1/trajectories/<id>/…, x-hone-trajectory, or a "
            "key of the trajectory."
        )
    run = NamedTrajectory(address.trajectory, address.group)
    trajectory_id = await trajectory_id_at(hone, run)
    await require_own(hone.project, caller_of(request), [trajectory_id], f"the trajectory {run}")
    return trajectory_id


async def _end(hone: HoneActions, trajectory_id: str, data: EndRequest | None) -> EndedTrajectory:
    how = data or EndRequest(state="completed", reason="closed")
    await hone.recorder.close(hone.project.id, trajectory_id, TrajectoryState(how.state), how.reason)
    ended = await load_trajectory(hone.project.store, trajectory_id)
    return EndedTrajectory(trajectory_id=trajectory_id, state=ended.state)


async def _note(hone: HoneActions, caller: Caller, trajectory_id: str, data: NewFeedback) -> RecordedFeedback:
    call_id = data.call_id or data.inference_id
    written = await write_feedback(
        hone,
        caller,
        trajectory_id,
        data.about,
        data.value,
        comment=data.comment,
        call_id=call_id,
        tags=data.tags,
        dry_run=data.dryrun,
    )
    return RecordedFeedback(feedback_id=written, trajectory_id=trajectory_id, call_id=call_id)


async def _family(hone: HoneActions, caller: Caller, run: NamedTrajectory) -> str | None:
    """Return the owner of a trajectory's new key: the key that created it, else the caller's. Raises Forbidden."""
    try:
        [made_by] = await find_owners(hone.project.store, [await trajectory_id_at(hone, run)])
    except NotFound:
        made_by = ""
    if not caller.access.may_name(made_by):
        raise Forbidden(f"the trajectory {run} belongs to another key: use a trajectory of your own.")
    return made_by or caller.access.key or None


async def _now(store: Store) -> float:
    async with store.read() as conn:
        return await sql.current_time(conn)
