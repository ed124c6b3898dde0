"""The programs of `hone up` in /hone/v1: their logs, and starting what hone.toml declares.

Refuses: commands, paths and versions of a caller's; a job is a name (`proxy.programs.start_request`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody, PathParameter
from pydantic import BaseModel, ConfigDict

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from proxy.errors import BadRequest
from proxy.programs.log_files import MOST_LINES, LogPart
from proxy.programs.service import ProgramService, ProgramsView
from recorder.queue.groups.lookup import find_group

ForPrograms = NamedDependency[ProgramService]
Name = Annotated[str, PathParameter(description="The program's name, from GET /hone/v1/programs.")]


class JobRequest(BaseModel):
    """A job of hone.toml to start or to stop."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    job: str
    """The job's name, from GET /hone/v1/programs."""
    action: Literal["start", "stop"] = "start"
    """`stop`: end it. A campaign goes on when it is started again."""


@get("/hone/v1/programs", responses=response_spec(200, ProgramsView))
async def show_programs(programs: ForPrograms) -> Response[bytes]:
    """Return the programs of this `hone up`, what it may start from here, and what it started last."""
    return json_response(await programs.view())


@get("/hone/v1/programs/{name:str}/log", responses=response_spec(200, LogPart))
async def show_log(
    programs: ForPrograms, name: Name, after: FromQuery[int | None] = None, lines: FromQuery[int] = MOST_LINES
) -> Response[bytes]:
    """Return the last lines of a program's log, keys masked. `after`: only those since an earlier answer's `next`."""
    if not 1 <= lines <= MOST_LINES:
        raise BadRequest(f"`lines` must be from 1 to {MOST_LINES}.", param="lines")
    if after is not None and after < 0:
        raise BadRequest("`after` must be the `next` of an earlier answer.", param="after")
    return json_response(await programs.read_log(name, after=after, lines=lines))


@post("/hone/v1/programs/jobs", status_code=202, responses=response_spec(202, ProgramsView))
async def request_job(programs: ForPrograms, request: AnyRequest, data: JSONBody[JobRequest]) -> Response[bytes]:
    """Have `hone up` start a job that hone.toml declares, or stop it. One runs at a time; 409 without `hone up`."""
    await programs.request(data.action, data.job, caller_id(caller_of(request)))
    return json_response(await programs.view(), status=202)


class TrialRequest(BaseModel):
    """A judge recipe to try on a group."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    group: str
    """The group's id or external id."""
    recipe: str
    """The name of a judge recipe of hone.toml."""


@post("/hone/v1/programs/trials", status_code=202, responses=response_spec(202, ProgramsView))
async def request_trial(
    hone: Injected, programs: ForPrograms, request: AnyRequest, data: JSONBody[TrialRequest]
) -> Response[bytes]:
    """Have `hone up` judge a group by a recipe of hone.toml. It stores no score: the log `trial` has the result."""
    group = await find_group(hone.project, data.group)
    await programs.request_trial(group, data.recipe, caller_id(caller_of(request)))
    return json_response(await programs.view(), status=202)
