"""Groups over /hone/v1: closed, read back with all their runs, and which pairs of runs wait for a person.

Owns: these routes. Refuses: which group a run joins, what closing makes of one (`recorder.groups`), and what is worth a
person's minutes (`recorder.reviewing`).
"""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.route_parts import AnyRequest, Id, Injected, answers, as_json, caller_of
from proxy.api.steering import who
from proxy.errors import Forbidden
from recorder.comparing.comparison import Comparison
from recorder.comparing.judging import Judging, load_judgings
from recorder.comparing.loading import load_comparison
from recorder.groups import closing
from recorder.groups.lookup import find_group
from recorder.reading.transcripts import load_group
from recorder.reviewing.queue import Asked, queue
from recorder.reviewing.shapes import Queue


@post("/hone/v1/groups/{group:str}/close", status_code=200, responses=answers(200, closing.GroupOutcome))
async def close_group(hone: Injected, request: AnyRequest, group: Id) -> Response[bytes]:
    """Close a group: no more attempts come, it can be judged."""
    caller = caller_of(request)
    if caller.run is not None:
        raise Forbidden("a key that was minted for a run can't close a group.")
    return as_json(await closing.close_group(hone.project, group, caller.whose.groups_of))


@get("/hone/v1/groups/{group:str}", responses=answers(200, dict[str, Any]))
async def show_group(
    hone: Injected, request: AnyRequest, group: Id, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """A group with all its runs."""
    found = await find_group(hone.project, group, caller_of(request).whose.groups_of)
    return as_json(await load_group(hone.project.store, found, with_tokens=tokens))


@get("/hone/v1/groups/{group:str}/comparison", responses=answers(200, Comparison))
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
    return as_json(await load_comparison(hone.project.store, found, left=left, right=right))


@get("/hone/v1/groups/{group:str}/judging", responses=answers(200, list[Judging]))
async def show_judging(
    hone: Injected, request: AnyRequest, group: Id, prompt: FromQuery[str | None] = None, reply: FromQuery[int] = 0
) -> Response[bytes]:
    """What judges said of a group, newest first: each score with its parts and the reply that it was read from.

    `prompt`: the id of the score of which `asked` is to say what the judge was asked; `reply`: where several replies
    made it, the number of the one that answers that.
    """
    found = await find_group(hone.project, group, caller_of(request).whose.groups_of)
    return as_json(await load_judgings(hone.project.store, found, prompt, reply))


@get("/hone/v1/review", responses=answers(200, Queue))
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
    asked = Asked(who(caller), alias or None, found, against or None)
    return as_json(await queue(hone.project, asked))
