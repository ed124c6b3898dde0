"""Groups over /hone/v1: closed, read back with all their runs, and which pairs of runs wait for a person.

Owns: these routes. Refuses: which group a run joins, what closing makes of one (`recorder.queue.groups`), and what is
worth a person's minutes (`recorder.views.review`).
"""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, Id, Injected, caller_of, json_response, response_spec
from proxy.errors import Forbidden
from recorder.queue.groups import closure
from recorder.queue.groups.lookup import find_group
from recorder.views.comparison.attempts import Comparison
from recorder.views.comparison.judge_records import ScoreRecord, load_judgings
from recorder.views.comparison.loader import load_comparison
from recorder.views.review.queue import QueueRequest, load_queue
from recorder.views.review.shapes import ReviewQueue
from recorder.views.trajectories.transcripts import load_group


@post("/hone/v1/groups/{group:str}/close", status_code=200, responses=response_spec(200, closure.GroupOutcome))
async def close_group(hone: Injected, request: AnyRequest, group: Id) -> Response[bytes]:
    """Close a group: no more attempts come, it can be judged."""
    caller = caller_of(request)
    if caller.run is not None:
        raise Forbidden("a key that was minted for a run can't close a group.")
    return json_response(await closure.close_group(hone.project, group, caller.whose.groups_of))


@get("/hone/v1/groups/{group:str}", responses=response_spec(200, dict[str, Any]))
async def show_group(
    hone: Injected, request: AnyRequest, group: Id, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """A group with all its runs."""
    found = await find_group(hone.project, group, caller_of(request).whose.groups_of)
    return json_response(await load_group(hone.project.store, found, with_tokens=tokens))


@get("/hone/v1/groups/{group:str}/comparison", responses=response_spec(200, Comparison))
async def compare_group(
    hone: Injected,
    request: AnyRequest,
    group: Id,
    left: FromQuery[str | None] = None,
    right: FromQuery[str | None] = None,
) -> Response[bytes]:
    """A group's attempts side by side, best first: rewards, advantages, and their turns aligned.

    The best eight, or the two runs that `left` and `right` name. What a cell shares with one on its left it does not
    carry again.
    """
    found = await find_group(hone.project, group, caller_of(request).whose.groups_of)
    return json_response(await load_comparison(hone.project.store, found, left=left, right=right))


@get("/hone/v1/groups/{group:str}/judging", responses=response_spec(200, list[ScoreRecord]))
async def show_judging(
    hone: Injected, request: AnyRequest, group: Id, prompt: FromQuery[str | None] = None, reply: FromQuery[int] = 0
) -> Response[bytes]:
    """What judges said of a group, newest first: each score with its parts and the reply that it was read from.

    `prompt`: the id of the score of which `asked` is to say what the judge was asked; `reply`: where several replies
    made it, the number of the one that answers that.
    """
    found = await find_group(hone.project, group, caller_of(request).whose.groups_of)
    return json_response(await load_judgings(hone.project.store, found, prompt, reply))


@get("/hone/v1/review", responses=response_spec(200, ReviewQueue))
async def show_review(
    hone: Injected,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    against: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Pairs of runs that wait for a person's choice, and why: groups that judges disagree about, the largest gains
    since the last version, what alarms name, a random share. `against`: `base`, a number or a version's name: the live
    version's runs beside those of that one, and who won.

    A choice is feedback `preference` on the better run, with the other's id (`loser`) and its group's (`group`) in its
    tags. What the caller answered does not come again.
    """
    caller = caller_of(request)
    found = await find_group(hone.project, group, caller.whose.groups_of) if group else None
    asked = QueueRequest(caller_id(caller), alias or None, found, against or None)
    return json_response(await load_queue(hone.project, asked))
