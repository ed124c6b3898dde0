"""The page Programs: what `hone up` runs, the logs of its programs, and starting what hone.toml declares.

Every page here needs the scope `admin`: a log may hold what agents and judges said. Refuses: which programs and jobs
there are (`proxy.programs.service`), and masking keys (`proxy.programs.log_files`).
"""

from __future__ import annotations

import html
import logging
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import quote

import orjson
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.renderer import ForPages, page_headers, render_page
from proxy.errors import BadRequest
from recorder.registry import keys
from recorder.registry.keys import Scope

PATH: Final = "/hone/programs"
ROOM_BYTES: Final = 130_000  # of a log's lines on its page
_ACTIONS: Final[dict[str, Literal["start", "stop"]]] = {"start": "start", "stop": "stop"}

log = logging.getLogger(__name__)


@get("/programs", include_in_schema=False)
async def programs_page(context: ForPages, request: AnyRequest) -> Response[str]:
    """The programs, what may be started, and what was started last."""
    caller_of(request).require(Scope.ADMIN, "reading logs")
    names = {one.id: one.name for one in await keys.newest_keys(context.project)}
    return render_page(request, "programs.html", view=await context.programs.view(), names=names)


@get("/programs/{name:str}", include_in_schema=False)
async def log_page(context: ForPages, request: AnyRequest, name: FromPath[str]) -> Response[str]:
    """The last lines of a program's log. Raises UnknownObject."""
    caller_of(request).require(Scope.ADMIN, "reading logs")
    part = await context.programs.read_log(name)
    shown = fit_lines(part.lines)
    return render_page(request, "log.html", name=name, part=part, lines=shown, left_out=len(part.lines) - len(shown))


@get("/programs/{name:str}/lines", include_in_schema=False)
async def log_lines(
    context: ForPages, request: AnyRequest, name: FromPath[str], after: FromQuery[int] = 0
) -> Response[bytes]:
    """The lines since `after` as JSON, for the page's script. Raises UnknownObject, BadRequest."""
    caller_of(request).require(Scope.ADMIN, "reading logs")
    if after < 0:
        raise BadRequest("`after` is not a place in a log: reload the page.", param="after")
    part = await context.programs.read_log(name, after=after)
    return Response(orjson.dumps(part), media_type="application/json", headers=page_headers())


@post("/programs/jobs", include_in_schema=False)
async def request_job(context: ForPages, request: AnyRequest) -> Response[None]:
    """Have `hone up` start or stop a job of hone.toml. Raises BadRequest, UnknownObject, StateConflict."""
    form = await forms.read_fields(request)
    action = _ACTIONS.get(forms.field_text(form, "action"))
    if action is None:
        raise BadRequest("the form must have the action `start` or `stop`.", param="action")
    job, by = forms.field_text(form, "job"), caller_id(caller_of(request))
    await context.programs.request(action, job, by)
    log.info("%s of %s was asked for on the page Programs by %s", action, job, by)
    return forms.back_to(f"{PATH}?asked={action}-{quote(job, safe='')}")


def fit_lines(lines: Sequence[str], room: int = ROOM_BYTES) -> list[str]:
    """The newest lines that fit on a page, oldest first."""
    fitting: list[str] = []
    for line in reversed(lines):
        room -= len(html.escape(line).encode("utf-8", "replace")) + 1
        if room < 0:
            break
        fitting.append(line)
    return fitting[::-1]
