"""Routes of groups in /hone/v1: close, read, compare, judge records, and the review queue.

Refuses: which group a trajectory joins and what closing does (`recorder.queue.groups`), and which pairs need a
review (`recorder.views.review`).
"""

from __future__ import annotations

from typing import Any

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.actions import caller_id, require_own_group
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
    """Close a group: no further trajectories join it, and a judge can score it. All members must be the caller's own,
    except with the scope `feedback-all`.
    """
    caller = caller_of(request)
    if caller.run is not None:
        raise Forbidden("a trajectory's key cannot close a group: use a key of the project.")
    group_id = await find_group(hone.project, group, caller.access.groups_of)
    await require_own_group(hone.project, caller, group_id)
    return json_response(await closure.close_group(hone.project, group_id))


@get("/hone/v1/groups/{group:str}", responses=response_spec(200, dict[str, Any]))
async def show_group(
    hone: Injected, request: AnyRequest, group: Id, tokens: FromQuery[bool] = False
) -> Response[bytes]:
    """Return a group with all its trajectories. `tokens` adds token ids and logprobs."""
    group_id = await find_group(hone.project, group, caller_of(request).access.groups_of)
    return json_response(await load_group(hone.project.store, group_id, with_tokens=tokens))


@get("/hone/v1/groups/{group:str}/comparison", responses=response_spec(200, Comparison))
async def compare_group(
    hone: Injected,
    request: AnyRequest,
    group: Id,
    left: FromQuery[str | None] = None,
    right: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Compare the attempts of a group, best first: rewards, advantages, and their aligned turns.

    It compares the best eight, or the two trajectories that `left` and `right` name. A cell does not repeat what a cell
    on its left already has.
    """
    group_id = await find_group(hone.project, group, caller_of(request).access.groups_of)
    return json_response(await load_comparison(hone.project.store, group_id, left=left, right=right))


@get("/hone/v1/groups/{group:str}/judging", responses=response_spec(200, list[ScoreRecord]))
async def show_judging(
    hone: Injected, request: AnyRequest, group: Id, prompt: FromQuery[str | None] = None, reply: FromQuery[int] = 0
) -> Response[bytes]:
    """Return a group's scores, newest first, each with its parts and the judge's replies.

    `prompt`: the id of a score, to include its prompt. `reply`: the number of the reply to include the prompt of, where
    a score has several.
    """
    group_id = await find_group(hone.project, group, caller_of(request).access.groups_of)
    return json_response(await load_judgings(hone.project.store, group_id, prompt, reply))


@get("/hone/v1/review", responses=response_spec(200, ReviewQueue))
async def show_review(
    hone: Injected,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    against: FromQuery[str | None] = None,
) -> Response[bytes]:
    """Return pairs of trajectories that need a person's choice, each with its reason: groups that judges disagree
    about, the largest gains since the last version, trajectories that alarms name, and a random sample.

    `against` (`base`, a number or a version's name): pairs of the live version and that version, with the tally. Record
    a choice as feedback `preference` on the better trajectory, with the tags `loser` (the other's id) and `group` (the
    group's id). Pairs that the caller has answered are not returned again.
    """
    caller = caller_of(request)
    group_id = await find_group(hone.project, group, caller.access.groups_of) if group else None
    request_for_queue = QueueRequest(caller_id(caller), alias or None, group_id, against or None)
    return json_response(await load_queue(hone.project, request_for_queue))
