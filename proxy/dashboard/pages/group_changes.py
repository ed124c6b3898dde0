"""What a person does to a group: has it scored anew, says which attempt is better.

Owns: these forms' answers. Refuses: whether somebody may (`proxy.admission.pages`), the deeds themselves.
"""

from __future__ import annotations

from urllib.parse import quote

from litestar import Response, post

from proxy.api.route_parts import AnyRequest, Id, caller_of
from proxy.api.steering import who
from proxy.dashboard import forms
from proxy.dashboard.shown import ForPages, Shown
from proxy.errors import BadRequest
from recorder.groups.lookup import find_group
from recorder.work import again, feedback

_PLACE = "place:"  # a field of a ranking: this, and the attempt's id


@post("/groups/{group:str}/again", include_in_schema=False)
async def score_anew(shown: ForPages, request: AnyRequest, group: Id) -> Response[None]:
    """Put a group before the judge again."""
    told = await forms.fields(request)
    group_id = await _found(shown, request, group)
    why = str(shown.hone.recorder.redaction.value(forms.text(told, "why")))
    await again.ask(shown.hone.project, group_id, by=who(caller_of(request)), why=why)
    return forms.back_to(f"{_path(group_id)}#again")


@post("/groups/{group:str}/preference", include_in_schema=False)
async def note_preference(shown: ForPages, request: AnyRequest, group: Id) -> Response[None]:
    """Write down which of two attempts is better, or the pairs that follow from a ranking of several."""
    told = await forms.fields(request)
    group_id = await _found(shown, request, group)
    better, worse = forms.text(told, "better"), forms.text(told, "worse")
    places = {name.removeprefix(_PLACE): _place(forms.text(told, name)) for name in told if name.startswith(_PLACE)}
    ranking = {id_: place for id_, place in places.items() if place is not None}
    pairs = [(better, worse)] if better and worse else feedback.pairs_of(ranking)
    if not pairs:
        raise BadRequest("nothing is preferred: choose the better and the worse attempt, or give two of them places.")
    comment = shown.hone.recorder.redaction.value(forms.text(told, "comment")) or None
    try:
        await feedback.prefer(shown.hone.project, group_id, pairs, by=who(caller_of(request)), comment=comment)
    except ValueError as e:
        raise BadRequest(f"{e}.") from e
    return forms.back_to(f"{_path(group_id)}#preferences")


async def _found(shown: Shown, request: AnyRequest, group: str) -> str:
    return await find_group(shown.hone.project, group, caller_of(request).whose.groups_of)


def _path(group_id: str) -> str:
    return f"/hone/groups/{quote(group_id, safe='')}"


def _place(text: str) -> int | None:
    """A place in a ranking; None where none was given. Raises BadRequest."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 1000):
        raise BadRequest(f"the place {text[:100]!r} is no number from 1 to 1000: 1 is the best.")
    return int(text)
