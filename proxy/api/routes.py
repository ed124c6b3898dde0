"""Hone's own routes, `/hone/v1/…`: runs minted, ended and judged by people; what is recorded, read back.

Owns: these bodies and answers. Every route that names a run also works behind an address (`/g/<group>/t/<id>/hone/v1/
done`), with a key minted for the run, and with `x-hone-trajectory`. Refuses: model traffic.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import orjson
from litestar import Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import FromQuery, JSONBody, PathParameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.admission.address import Named
from proxy.admission.auth import Caller
from proxy.admission.replies import PROBLEM
from proxy.api.steering import Hone, note, own_run, run_at
from proxy.errors import BadRequest, Forbidden, Missing
from recorder.content.turns import Address
from recorder.groups import closing
from recorder.groups.lookup import find_group
from recorder.ids import check_external, new_id
from recorder.reading.transcripts import find_trajectory, load_group, load_trajectory, trajectory_of_call
from recorder.registry import keys
from recorder.registry import versions as stored_versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.keys import Scope
from recorder.states import TrajectoryState
from recorder.store import sql
from recorder.store.database import Store
from recorder.upkeep import deletion
from recorder.work import feedback

AnyRequest = Request[Any, Any, Any]
Id = Annotated[str, PathParameter(description="Hone's own id (`traj_…`), or the id that the caller gave.")]


Injected = NamedDependency[Hone]


class Problem(BaseModel):
    """What is wrong with a request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """What happened, to what, and what to do."""
    code: str | None = None
    param: str | None = None
    """The field or parameter at fault."""


@dataclass
class _BodyOptional(Operation):
    """An operation whose body may be left out, which the framework does not see in a default."""

    def __post_init__(self) -> None:
        if isinstance(self.request_body, RequestBody):
            self.request_body.required = False


def _answers(status: int, body: Any) -> dict[int, ResponseSpec]:
    """What a route answers, for /schema."""
    return _PROBLEMS | {status: ResponseSpec(body, description=HTTPStatus(status).phrase, generate_examples=False)}


_PROBLEMS: Final = {
    status: ResponseSpec(
        Problem, description=HTTPStatus(status).phrase, media_type=PROBLEM.decode(), generate_examples=False
    )
    for status in (400, 401, 403, 404, 405, 409, 413, 415, 500, 503)
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class NewRun(_Body):
    """A run to be made: an address for an agent that can be given a base URL, a key for one that can't."""

    trajectory: str | None = None
    """The run's id. Default: a new one."""
    group: str | None = None
    """The group that the run is an attempt of."""
    expires_in_s: float | None = Field(None, gt=0)
    """How long the key is good. Default: until it is revoked."""


class Run(BaseModel):
    """A run that was made."""

    trajectory: str
    group: str | None
    base_url: str
    api_key: str
    key_id: str


class Done(_Body):
    """How a run ended."""

    state: Literal["completed", "errored", "abandoned"] = "completed"
    """`completed`: the agent ended, however badly. `errored`: the fault was not the agent's; it is never judged."""
    reason: str = Field("closed", max_length=200)


class Ended(BaseModel):
    """A run that has ended."""

    trajectory_id: str
    state: str


class Gone(BaseModel):
    """What was deleted."""

    trajectory_ids: list[str]
    """All trajectories at the address that was named, or the one."""
    calls: int
    log_erased: bool
    """Whether the store's log was emptied too. False: readers kept it; it is when it is next emptied."""


class NewFeedback(_Body):
    """What somebody says about a run, or about one call of it. TensorZero's names work too."""

    name: str | None = None
    """What is measured, for example `solved`. Reserved: `comment` and `demonstration`, whose value is text."""
    metric_name: str | None = None
    """Another name for `name`."""
    value: bool | int | float | str
    comment: str | None = Field(None, max_length=feedback.MAX_TEXT_CHARS)
    call_id: str | None = None
    """The call that is meant (`x-hone-call`)."""
    inference_id: str | None = None
    """Another name for `call_id`."""
    trajectory_id: str | None = None
    """The run that is meant, where neither the path, nor a header, nor the key names it."""
    episode_id: str | None = None
    """Another name for `trajectory_id`."""
    tags: dict[str, str] = {}
    dryrun: bool = False
    """Check and write nothing."""

    @model_validator(mode="after")
    def _one_name(self) -> NewFeedback:
        if (self.name is None) == (self.metric_name is None):
            raise ValueError("give `name` (or `metric_name`), and only one of them")
        return self

    @property
    def about(self) -> str:
        """The feedback's name."""
        return self.name or self.metric_name or ""


class Noted(BaseModel):
    """Feedback that was written; `feedback_id` is None for a dry run."""

    feedback_id: str | None
    trajectory_id: str
    call_id: str | None


# --- runs


@post("/hone/v1/trajectories", responses=_PROBLEMS)
async def make_run(hone: Injected, request: AnyRequest, data: JSONBody[NewRun]) -> Run:
    """Make a run: its id, its address, and a key that stands for it."""
    caller = _caller(request)
    run = Named(
        check_external(data.trajectory or new_id("run"), "trajectory"),
        check_external(data.group, "group") if data.group is not None else None,
    )
    if caller.run is not None:
        raise Forbidden("a key that was minted for a run can't make others.")
    scopes = {scope for scope in (Scope.INFER, Scope.FEEDBACK) if caller.may(scope)}
    expires_at = await _now(hone.store) + data.expires_in_s if data.expires_in_s is not None else None
    key, secret = await keys.mint(hone.store, hone.project_id, f"run {run}", scopes, str(run), expires_at)
    path = f"g/{run.group}/t/{run.trajectory}" if run.group else f"t/{run.trajectory}"
    return Run(
        trajectory=str(run.trajectory),
        group=run.group,
        base_url=f"{request.base_url}{path}/v1",
        api_key=secret,
        key_id=key.id,
    )


@post(
    "/hone/v1/trajectories/{trajectory:str}/done", status_code=200, responses=_PROBLEMS, operation_class=_BodyOptional
)
async def end_run(hone: Injected, request: AnyRequest, trajectory: Id, data: JSONBody[Done | None] = None) -> Ended:
    """End a run. Ending it twice changes nothing."""
    return await _end(hone, await _own(hone, request, trajectory), data)


@post("/hone/v1/done", status_code=200, responses=_PROBLEMS, operation_class=_BodyOptional)
async def end_addressed_run(hone: Injected, request: AnyRequest, data: JSONBody[Done | None] = None) -> Ended:
    """End the run that the path, the key or a header names."""
    return await _end(hone, await _addressed(hone, request), data)


@post("/hone/v1/trajectories/{trajectory:str}/feedback", responses=_PROBLEMS)
async def note_feedback(hone: Injected, request: AnyRequest, trajectory: Id, data: JSONBody[NewFeedback]) -> Noted:
    """Say how a run, or one call of it, went."""
    return await _note(hone, await _own(hone, request, trajectory), data)


@post("/hone/v1/feedback", responses=_PROBLEMS)
async def note_addressed_feedback(hone: Injected, request: AnyRequest, data: JSONBody[NewFeedback]) -> Noted:
    """Say how the run that the body, the path, the key or a header names went."""
    call_id, named = data.call_id or data.inference_id, data.trajectory_id or data.episode_id
    if named is not None:
        return await _note(hone, await _own(hone, request, named), data)
    if call_id is None:
        return await _note(hone, await _addressed(hone, request), data)
    of_call = await trajectory_of_call(hone.store, hone.project_id, call_id)
    if of_call is None:
        raise Missing(f"no call {call_id[:200]!r}: it is what an answer says in x-hone-call.", param="call_id")
    return await _note(hone, await _own(hone, request, of_call), data)


@post("/hone/v1/groups/{group:str}/close", status_code=200, responses=_answers(200, closing.GroupOutcome))
async def close_group(hone: Injected, request: AnyRequest, group: Id) -> Response[bytes]:
    """Close a group: no more attempts come, it can be judged."""
    if _caller(request).run is not None:
        raise Forbidden("a key that was minted for a run can't close a group.")
    return _json(await closing.close_group(hone.store, hone.project_id, group))


@delete("/hone/v1/trajectories/{trajectory:str}", status_code=200, responses=_PROBLEMS)
async def delete_run(hone: Injected, trajectory: Id, group: FromQuery[str | None] = None) -> Gone:
    """Delete a run for good: its calls, messages, tokens, scores and feedback. It must have ended."""
    ids = await deletion.run_of(hone.store, hone.project_id, trajectory, group)
    try:
        gone = [await deletion.delete_trajectory(hone.store, hone.project_id, id_) for id_ in ids]
    finally:
        erased = await deletion.erase(hone.store)
    return Gone(trajectory_ids=[one.trajectory_id for one in gone], calls=sum(g.calls for g in gone), log_erased=erased)


# --- reading back


@get("/hone/v1/trajectories/{trajectory:str}", responses=_answers(200, dict[str, Any]))
async def show_trajectory(
    hone: Injected, trajectory: Id, group: FromQuery[str | None] = None, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """One run with its conversation and its calls; `tokens` adds the exact ids and logprobs."""
    found = await find_trajectory(hone.store, hone.project_id, trajectory, group)
    return _json(await load_trajectory(hone.store, found, with_tokens=tokens))


@get("/hone/v1/groups/{group:str}", responses=_answers(200, dict[str, Any]))
async def show_group(hone: Injected, group: Id, tokens: FromQuery[bool] = False) -> Response[bytes]:
    """A group with all its runs."""
    found = await find_group(hone.store, hone.project_id, group)
    return _json(await load_group(hone.store, found, with_tokens=tokens))


@get("/hone/v1/aliases", responses=_answers(200, list[AliasView]))
async def show_aliases(hone: Injected) -> Response[bytes]:
    """The names that agents ask for, and where they point."""
    return _json(await get_aliases(hone.store, hone.project_id))


@get("/hone/v1/versions", responses=_answers(200, list[stored_versions.VersionView]))
async def show_versions(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """The versions of an alias, or of all, by number."""
    aliases = [a for a in await get_aliases(hone.store, hone.project_id) if alias in (None, a.name)]
    if not aliases:
        raise Missing(f"no alias {alias!r}: GET /hone/v1/aliases lists them.", param="alias")
    return _json([v for a in aliases for v in await stored_versions.list_versions(hone.store, a.id)])


HANDLERS: list[HTTPRouteHandler] = [
    make_run,
    end_run,
    end_addressed_run,
    note_feedback,
    note_addressed_feedback,
    close_group,
    delete_run,
    show_trajectory,
    show_group,
    show_aliases,
    show_versions,
]


def methods_at(path: str) -> list[str]:
    """The methods that a path of these routes is served with; what a 405 tells in `Allow`."""
    parts = path.rstrip("/").split("/")
    found = {"OPTIONS"}
    for handler in HANDLERS:
        for template in handler.paths:
            wanted = template.split("/")
            if len(wanted) == len(parts) and all(w == p or w[:1] == "{" for w, p in zip(wanted, parts, strict=True)):
                found |= set(handler.http_methods)
    return sorted(found)


async def tell_options(request: AnyRequest) -> Response[None] | None:
    """Before a request: what may be done at a path. The framework would name the methods of one handler alone."""
    if request.method != "OPTIONS":
        return None
    return Response(None, status_code=204, headers={"allow": ", ".join(methods_at(request.url.path))})


def _caller(request: AnyRequest) -> Caller:
    caller: Caller = request.scope["hone.caller"]  # type: ignore[typeddict-item]  # put there by the gate
    return caller


async def _own(hone: Hone, request: AnyRequest, named: str) -> str:
    return await own_run(hone, _caller(request), named)


async def _addressed(hone: Hone, request: AnyRequest) -> str:
    """The internal id of the run that path, key or header name."""
    address: Address = request.scope["hone.stated"].address  # type: ignore[typeddict-item]  # put there by the gate
    if address.trajectory is None:
        raise BadRequest(
            "no run is named: use /t/<id>/hone/v1/…, /hone/v1/trajectories/<id>/…, x-hone-trajectory, or a run's key."
        )
    return await run_at(hone, Named(address.trajectory, address.group))


async def _end(hone: Hone, trajectory_id: str, data: Done | None) -> Ended:
    how = data or Done(state="completed", reason="closed")
    await hone.recorder.close(hone.project_id, trajectory_id, TrajectoryState(how.state), how.reason)
    ended = await load_trajectory(hone.store, trajectory_id)
    return Ended(trajectory_id=trajectory_id, state=ended.state)


async def _note(hone: Hone, trajectory_id: str, data: NewFeedback) -> Noted:
    call_id = data.call_id or data.inference_id
    written = await note(
        hone,
        trajectory_id,
        data.about,
        data.value,
        comment=data.comment,
        call_id=call_id,
        tags=data.tags,
        dry_run=data.dryrun,
    )
    return Noted(feedback_id=written, trajectory_id=trajectory_id, call_id=call_id)


async def _now(store: Store) -> float:
    async with store.read() as conn:
        return await sql.clock(conn)


def _json(value: object) -> Response[bytes]:
    return Response(orjson.dumps(value, default=_listed), media_type="application/json")


def _listed(value: object) -> object:
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
