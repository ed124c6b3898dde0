"""Runs over /hone/v1: made, ended, judged by people, read back, deleted.

Owns: these routes. Every one that names a run also works behind an address (`/g/<group>/t/<id>/hone/v1/done`), with a
key minted for the run, and with `x-hone-trajectory`. Refuses: whose run a caller may speak for (`proxy.api.actions`).
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Response, delete, get, post
from litestar.params import FromQuery, JSONBody

from proxy.admission.address import NamedTrajectory
from proxy.admission.auth import Caller
from proxy.api.actions import HoneActions, own_trajectory_id, trajectory_id_at, write_feedback
from proxy.api.bodies import (
    CreatedTrajectory,
    CreateTrajectory,
    DeletedTrajectories,
    EndedTrajectory,
    EndRequest,
    NewFeedback,
    RecordedFeedback,
)
from proxy.api.route_parts import (
    PROBLEMS,
    AnyRequest,
    BodyOptional,
    CallId,
    Id,
    Injected,
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
from recorder.views.trajectories.transcripts import find_owner, find_trajectory, load_trajectory, trajectory_of_call
from recorder.views.trajectory_detail.loader import build_detail, detail_json

_MERGE_S: Final = 5.0  # who deletes waits for the bytes to leave a large index no longer


@post("/hone/v1/trajectories", responses=PROBLEMS)
async def create_trajectory(hone: Injected, request: AnyRequest, data: JSONBody[CreateTrajectory]) -> CreatedTrajectory:
    """Make a run: its id, its address, and a key that stands for it. One that is there must be the caller's own."""
    caller = caller_of(request)
    run = NamedTrajectory(
        check_external(data.trajectory or new_id("run"), "trajectory"),
        check_external(data.group, "group") if data.group is not None else None,
    )
    if caller.run is not None:
        raise Forbidden("a key that was minted for a run can't make others.")
    scopes = {scope for scope in (Scope.INFER, Scope.FEEDBACK) if caller.may(scope)}
    expires_at = await _now(hone.project.store) + data.expires_in_s if data.expires_in_s is not None else None
    family = await _family(hone, caller, run)
    key, secret = await keys.create_key(hone.project, f"run {run}", scopes, str(run), expires_at, family, caller.key)
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
    """End a run. Ending it twice changes nothing."""
    return await _end(hone, await _own(hone, request, trajectory), data)


@post("/hone/v1/done", status_code=200, responses=PROBLEMS, operation_class=BodyOptional)
async def end_addressed_trajectory(
    hone: Injected, request: AnyRequest, data: JSONBody[EndRequest | None] = None
) -> EndedTrajectory:
    """End the run that the path, the key or a header names."""
    return await _end(hone, await _addressed(hone, request), data)


@post("/hone/v1/trajectories/{trajectory:str}/feedback", responses=PROBLEMS)
async def note_feedback(
    hone: Injected, request: AnyRequest, trajectory: Id, data: JSONBody[NewFeedback]
) -> RecordedFeedback:
    """Say how a run, or one call of it, went."""
    return await _note(hone, await _own(hone, request, trajectory), data)


@post("/hone/v1/feedback", responses=PROBLEMS)
async def note_addressed_feedback(hone: Injected, request: AnyRequest, data: JSONBody[NewFeedback]) -> RecordedFeedback:
    """Say how the run that the body, the path, the key or a header names went."""
    call_id, named = data.call_id or data.inference_id, data.trajectory_id or data.episode_id
    if named is not None:
        return await _note(hone, await _own(hone, request, named), data)
    if call_id is None:
        return await _note(hone, await _addressed(hone, request), data)
    of_call = await trajectory_of_call(hone.project, call_id)
    if of_call is None:
        raise UnknownObject(f"no call {call_id[:200]!r}: it is what an answer says in x-hone-call.", param="call_id")
    return await _note(hone, await _own(hone, request, of_call), data)


@get("/hone/v1/trajectories/{trajectory:str}", responses=response_spec(200, dict[str, Any]))
async def show_trajectory(
    hone: Injected, trajectory: Id, group: FromQuery[str | None] = None, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """One run with its calls; `told` is its conversation turn by turn, `standing` what became of it, `timeline` when
    models and tools worked. `tokens` adds the exact ids and logprobs."""
    found = await find_trajectory(hone.project, trajectory, group)
    view = await load_trajectory(hone.project.store, found, with_tokens=tokens)
    return json_response(detail_json(await build_detail(hone.project.store, view)))


@get("/hone/v1/calls/{call:str}", responses=response_spec(200, dict[str, Any]))
async def show_call(hone: Injected, call: CallId, tokens: FromQuery[bool] = False) -> Response[bytes]:
    """One call as it was asked and answered; `tokens` adds the exact ids and logprobs."""
    home = await trajectory_of_call(hone.project, call)
    if home is None:
        raise UnknownObject(f"no call {call[:200]!r}: it is what an answer says in x-hone-call.")
    view = await load_trajectory(hone.project.store, home, with_tokens=tokens)
    return json_response(next(one for one in view.calls if one.id == call))


@delete("/hone/v1/trajectories/{trajectory:str}", status_code=200, responses=PROBLEMS)
async def delete_trajectory(hone: Injected, trajectory: Id, group: FromQuery[str | None] = None) -> DeletedTrajectories:
    """Delete a run for good: its calls, messages, tokens, scores and feedback. It must have ended."""
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
    """The internal id of the run that path, key or header name."""
    address: Address = request.scope["hone.stated"].address  # type: ignore[typeddict-item]  # put there by the gate
    if address.trajectory is None:
        raise BadRequest(
            "no run is named: use /t/<id>/hone/v1/…, /hone/v1/trajectories/<id>/…, x-hone-trajectory, or a run's key."
        )
    return await trajectory_id_at(hone, NamedTrajectory(address.trajectory, address.group))


async def _end(hone: HoneActions, trajectory_id: str, data: EndRequest | None) -> EndedTrajectory:
    how = data or EndRequest(state="completed", reason="closed")
    await hone.recorder.close(hone.project.id, trajectory_id, TrajectoryState(how.state), how.reason)
    ended = await load_trajectory(hone.project.store, trajectory_id)
    return EndedTrajectory(trajectory_id=trajectory_id, state=ended.state)


async def _note(hone: HoneActions, trajectory_id: str, data: NewFeedback) -> RecordedFeedback:
    call_id = data.call_id or data.inference_id
    written = await write_feedback(
        hone,
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
    """The family of a key for a run: of whoever made that, else the caller's. Raises Forbidden for another's."""
    try:
        made_by = await find_owner(hone.project.store, await trajectory_id_at(hone, run))
    except NotFound:
        made_by = ""
    if not caller.whose.may_name(made_by):
        raise Forbidden(f"the run {run} was made with another key: name a run of your own.")
    return made_by or caller.whose.key or None


async def _now(store: Store) -> float:
    async with store.read() as conn:
        return await sql.format_wait(conn)
