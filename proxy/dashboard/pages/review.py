"""The page Review: two trajectories side by side, blind, the form to choose the better one, and the queue.

Refuses: which pairs are in the queue and how a choice is recorded (`recorder.views.review`), and scopes
(`proxy.admission.pages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.page_budget import fit_pair
from proxy.dashboard.renderer import ForPages, render_page
from proxy.errors import BadRequest
from recorder.queue.groups.lookup import find_group
from recorder.views.review.human_labels import ReviewAnswer, record_choice
from recorder.views.review.queue import QueueRequest, load_queue
from recorder.views.review.trajectories import NAMES, load_blind_pair

PATH: Final = "/hone/review"
_MAX_SKIPPED: Final = 30  # skipped pairs that an address names, the last ones
_BETWEEN: Final = "~"  # separates the two ids of a skipped pair


@get("/review", include_in_schema=False)
async def review_page(
    context: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    group: FromQuery[str | None] = None,
    against: FromQuery[str | None] = None,
    skip: FromQuery[list[str] | None] = None,
    row: FromQuery[int] = 0,
) -> Response[str]:
    """The next pair, blind, and the queue. `row`: the first row that is shown; `skip`: pairs to pass over."""
    caller = caller_of(request)
    group_id = await find_group(context.project, group, caller.access.groups_of) if group else None
    passed = frozenset(frozenset(pair.split(_BETWEEN)) for pair in skip or ())
    queue_request = QueueRequest(caller_id(caller), alias or None, group_id, against or None, passed)
    waiting = await load_queue(context.project, queue_request)
    entry = waiting.entries[0] if waiting.entries else None
    two = await load_blind_pair(context.project.store, entry.first, entry.second) if entry else None
    begins = min(max(row, 0), max(len(two.rows) - 1, 0)) if two else 0
    filters = [(name, value) for name, value in (("alias", alias), ("group", group), ("against", against)) if value]
    skipped = [*(skip or ()), f"{entry.first}{_BETWEEN}{entry.second}"] if entry else []
    return render_page(
        request,
        "review.html",
        waiting=waiting,
        entry=entry,
        two=two,
        names=NAMES,
        begins=begins,
        fits=fit_pair(two.beginning if not begins else (), two.rows[begins:]) if two else None,
        alias=alias or "",
        group=group or "",
        against=against or "",
        back=_query(filters, skip or ()),
        further=_query(filters, skipped),
    )


def _query(filters: Sequence[tuple[str, str]], skipped: Sequence[str]) -> str:
    return urlencode([*filters, *(("skip", pair) for pair in skipped[-_MAX_SKIPPED:])])


@post("/review/preference", include_in_schema=False)
async def note_choice(context: ForPages, request: AnyRequest) -> Response[None]:
    """Record which of the two is better, and continue with the next pair. Raises BadRequest."""
    form = await forms.read_fields(request)
    first, second = forms.field_text(form, "first"), forms.field_text(form, "second")
    try:
        answer = ReviewAnswer(forms.field_text(form, "choice"))
    except ValueError as e:
        raise BadRequest(f"the form has no valid choice: send one of {', '.join(ReviewAnswer)}.", param="choice") from e
    comment = (await context.hone.recorder.redaction.redact_value(forms.field_text(form, "comment"))) or None
    _store, person = context.hone.project.store, caller_id(caller_of(request))
    try:
        await record_choice(context.hone.project, first, second, answer, by=person, comment=comment)
    except ValueError as e:
        raise BadRequest(f"{e}.") from e
    back = forms.field_text(form, "back")
    return forms.back_to(forms.local_path(f"{PATH}?{back}" if back else PATH))
