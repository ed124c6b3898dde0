"""One group: its attempts side by side, and what judges said of it.

Owns: these two pages. Refuses: the comparison (`recorder.comparing`), what a
person does here (`proxy.dashboard.pages.group_changes`).
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.route_parts import AnyRequest, Id, caller_of
from proxy.dashboard.fitting import Fits, fit
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages, Shown
from recorder.comparing.judging import Judging, load_judgings
from recorder.comparing.loading import load_with_two
from recorder.groups.lookup import find_group
from recorder.reasons import meaning
from recorder.work import again

OFFERED: Final = 40  # attempts that a form lets choose from
_REPLIES_BYTES: Final = 60_000  # of judges' replies on a page, all together; and as much of their reasons
_PROMPT_BYTES: Final = 60_000  # of each of two messages of the one score whose prompts are shown; of more, less
_MOST_RUNS: Final = 100  # of all scores together on the page of what judges said
_MOST_CHARS: Final = 2_000  # of one reason


@get("/groups/{group:str}", include_in_schema=False)
async def group_page(
    shown: ForPages,
    request: AnyRequest,
    group: Id,
    left: FromQuery[str | None] = None,
    right: FromQuery[str | None] = None,
) -> Response[str]:
    """Attempts side by side: the best eight, or two that were chosen. A narrow screen shows two in any case."""
    group_id = await _found(shown, request, group)
    compared, narrow = await load_with_two(shown.project.store, group_id, left=left or None, right=right or None)
    head = compared.group
    return render(
        request,
        "group.html",
        c=compared,
        narrow=narrow,
        fits=fit([compared, *([narrow] if narrow else [])]),
        offered=[one for one in compared.attempts if one.number <= OFFERED or one.number in compared.columns],
        chosen=bool(left or right),
        why=meaning(head.reason) if head.reason else None,
        not_again=again.refusal(head.state, head.reason),
    )


@get("/groups/{group:str}/judging", include_in_schema=False)
async def judging_page(
    shown: ForPages, request: AnyRequest, group: Id, prompt: FromQuery[str | None] = None, reply: FromQuery[int] = 0
) -> Response[str]:
    """What judges were asked and said, each reply whole up to a bound.

    `prompt`: of which score the prompt is shown, and of several replies that of the number `reply`, which it answers.
    """
    group_id = await _found(shown, request, group)
    judgings = await load_judgings(shown.project.store, group_id, prompt, reply)
    many = max(1, len(judgings))
    runs = max(8, _MOST_RUNS // many)
    asked = max((_messages_of(one) for one in judgings), default=0)
    told = sum(1 + len(run.parts) for one in judgings for run in one.runs[:runs])
    told += sum(1 + len(said.verdicts[:runs]) for one in judgings for said in one.replies[:16])
    told += sum(1 + len(second.parts[:runs]) for one in judgings for second in one.beside[-4:])
    return render(
        request,
        "judging.html",
        group_id=group_id,
        judgings=judgings,
        wanted=prompt,
        answer=reply,
        runs=runs,
        reasons=Fits((), (), min(_MOST_CHARS, _REPLIES_BYTES // max(1, told))),
        replies=Fits((), (), _REPLIES_BYTES // many),
        prompts=Fits((), (), _PROMPT_BYTES // max(1, asked // 2)),
    )


def _messages_of(judging: Judging) -> int:
    return len(judging.asked or ()) + sum(len(one.messages) for one in judging.run_prompts)


async def _found(shown: Shown, request: AnyRequest, group: str) -> str:
    return await find_group(shown.project, group, caller_of(request).whose.groups_of)
