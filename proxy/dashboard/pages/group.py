"""The page of a group (its attempts side by side), the page of its scores, and the forms to rescore and to compare.

Refuses: the comparison (`recorder.views.comparison`), the changes themselves (`recorder.queue`), and scopes
(`proxy.admission.pages`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.actions import caller_id, require_own
from proxy.api.route_parts import AnyRequest, Id, caller_of
from proxy.dashboard import forms
from proxy.dashboard.page_budget import PageFit, fit_comparison
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.errors import BadRequest
from recorder.queue import feedback
from recorder.queue.groups.lookup import find_group
from recorder.queue.judging import rescoring
from recorder.reasons import explain_reason
from recorder.views.comparison.judge_records import ScoreRecord, load_judgings
from recorder.views.comparison.loader import load_with_two
from recorder.views.lists.short_ids import cut_ids
from recorder.views.lists.titles import group_outcome, load_tasks, title_of

MAX_OPTIONS: Final = 40  # attempts that a form offers
_REPLIES_BYTES: Final = 60_000  # of all judge replies on a page; the same again for their explanations
_PROMPT_BYTES: Final = 60_000  # of each of two prompt messages of the selected score; less with more messages
_MAX_TRAJECTORIES: Final = 100  # of all scores together on the page of scores
_MAX_CHARS: Final = 2_000  # of one explanation


@get("/groups/{group:str}", include_in_schema=False)
async def group_page(
    context: ForPages,
    request: AnyRequest,
    group: Id,
    left: FromQuery[str | None] = None,
    right: FromQuery[str | None] = None,
) -> Response[str]:
    """The attempts side by side: the best eight, or the two chosen ones. A narrow screen shows two in any case."""
    group_id = await _find_readable_group(context, request, group)
    compared, narrow = await load_with_two(context.project.store, group_id, left=left or None, right=right or None)
    head = compared.group
    return render_page(
        request,
        "group.html",
        c=compared,
        narrow=narrow,
        fits=fit_comparison([compared, *([narrow] if narrow else [])]),
        offered=[one for one in compared.attempts if one.number <= MAX_OPTIONS or one.number in compared.columns],
        chosen=bool(left or right),
        title=title_of(head.task, head.external_id, head.id),
        became=group_outcome(head.state, [one.reward for one in compared.attempts]),
        shown=cut_ids(one.trajectory.external_id or one.trajectory.id for one in compared.attempts),
        why=explain_reason(head.reason) if head.reason else None,
        not_again=rescoring.refusal_reason(head.state, head.reason),
        recipes=context.programs.recipes,
        programs=await context.programs.view() if context.programs.recipes else None,
    )


@get("/groups/{group:str}/judging", include_in_schema=False)
async def judging_page(
    context: ForPages, request: AnyRequest, group: Id, prompt: FromQuery[str | None] = None, reply: FromQuery[int] = 0
) -> Response[str]:
    """The scores of a group with their prompts and replies, cut to the size of a page.

    `prompt`: the id of the score to show the prompt of; `reply`: the index of the reply, where it has several.
    """
    group_id = await _find_readable_group(context, request, group)
    judgings = await load_judgings(context.project.store, group_id, prompt, reply)
    many = max(1, len(judgings))
    runs = max(8, _MAX_TRAJECTORIES // many)
    prompt_messages = max((_messages_of(one) for one in judgings), default=0)
    explanations = sum(1 + len(run.parts) for one in judgings for run in one.trajectories[:runs])
    explanations += sum(1 + len(sent.verdicts[:runs]) for one in judgings for sent in one.replies[:16])
    explanations += sum(1 + len(check.parts[:runs]) for one in judgings for check in one.cross_checks[-4:])
    tasks = await load_tasks(context.project.store, groups=[group_id])
    return render_page(
        request,
        "judging.html",
        group_id=group_id,
        task=tasks.get(group_id),
        shown=cut_ids(run.external_id or run.trajectory_id for one in judgings for run in one.trajectories),
        judgings=judgings,
        selected=prompt,
        answer=reply,
        runs=runs,
        reasons=PageFit((), (), min(_MAX_CHARS, _REPLIES_BYTES // max(1, explanations))),
        replies=PageFit((), (), _REPLIES_BYTES // many),
        prompts=PageFit((), (), _PROMPT_BYTES // max(1, prompt_messages // 2)),
    )


def _messages_of(judging: ScoreRecord) -> int:
    return len(judging.prompt or ()) + sum(len(one.messages) for one in judging.trajectory_prompts)


async def _find_readable_group(context: PageContext, request: AnyRequest, group: str) -> str:
    return await find_group(context.project, group, caller_of(request).access.groups_of)


_PLACE = "place:"  # the prefix of a ranking field; the attempt's id follows


@post("/groups/{group:str}/rescore", include_in_schema=False)
async def rescore_group(context: ForPages, request: AnyRequest, group: Id) -> Response[None]:
    """Request that a judge rescores the group."""
    form = await forms.read_fields(request)
    group_id = await _find_group(context, request, group)
    why = str(await context.hone.recorder.redaction.redact_value(forms.field_text(form, "why")))
    await rescoring.request_rescore(context.hone.project, group_id, by=caller_id(caller_of(request)), why=why)
    return forms.back_to(f"{_path(group_id)}#rescore")


@post("/groups/{group:str}/trial", include_in_schema=False)
async def try_recipe(context: ForPages, request: AnyRequest, group: Id) -> Response[None]:
    """Have `hone up` judge the group by another recipe, without a score. Raises UnknownObject, StateConflict."""
    form = await forms.read_fields(request)
    group_id = await _find_group(context, request, group)
    recipe = forms.field_text(form, "recipe")
    await context.programs.request_trial(group_id, recipe, caller_id(caller_of(request)))
    return forms.back_to(f"{_path(group_id)}?tried={quote(recipe, safe='')}#trial")


@post("/groups/{group:str}/preference", include_in_schema=False)
async def note_preference(context: ForPages, request: AnyRequest, group: Id) -> Response[None]:
    """Record which of two attempts is better, or the pairs that follow from a ranking. Raises BadRequest."""
    form = await forms.read_fields(request)
    group_id = await _find_group(context, request, group)
    better, worse = forms.field_text(form, "better"), forms.field_text(form, "worse")
    places = {
        name.removeprefix(_PLACE): _parse_rank(forms.field_text(form, name)) for name in form if name.startswith(_PLACE)
    }
    ranking = {id_: place for id_, place in places.items() if place is not None}
    pairs = [(better, worse)] if better and worse else feedback.ranking_pairs(ranking)
    if not pairs:
        raise BadRequest(
            "the form has no preference: choose a better and a worse attempt, or rank at least two attempts."
        )
    compared = sorted({id_ for pair in pairs for id_ in pair})
    await require_own(context.hone.project, caller_of(request), compared, f"an attempt of the group {group_id}")
    comment = (await context.hone.recorder.redaction.redact_value(forms.field_text(form, "comment"))) or None
    try:
        await feedback.write_preferences(
            context.hone.project, group_id, pairs, by=caller_id(caller_of(request)), comment=comment
        )
    except ValueError as e:
        raise BadRequest(f"{e}.") from e
    return forms.back_to(f"{_path(group_id)}#preferences")


async def _find_group(context: PageContext, request: AnyRequest, group: str) -> str:
    return await find_group(context.hone.project, group, caller_of(request).access.groups_of)


def _path(group_id: str) -> str:
    return f"/hone/groups/{quote(group_id, safe='')}"


def _parse_rank(text: str) -> int | None:
    """A rank, 1 the best; None if the field is empty. Raises BadRequest."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 1000):
        raise BadRequest(f"the rank {text[:100]!r} is not a number from 1 to 1000 (1 is the best).")
    return int(text)
