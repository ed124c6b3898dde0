"""What a person does to a run: says how it went, tags it, deletes it.

Owns: these forms' answers. Refuses: whether somebody may (`proxy.admission.pages`), the deeds themselves.
"""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import PathParameter

from proxy.api import steering
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages, Shown
from proxy.errors import BadRequest
from recorder.groups.tags import set_tag
from recorder.reading.transcripts import find_trajectory, load_trajectory
from recorder.upkeep import deletion

Name = Annotated[str, PathParameter()]
_VERDICTS = {"good": True, "bad": False}


@post("/runs/{run:str}/feedback", include_in_schema=False)
async def give_feedback(shown: ForPages, request: AnyRequest, run: Name) -> Response[None]:
    """Write down what somebody says of a run, or of one call of it."""
    told = await forms.fields(request)
    trajectory_id = await _run(shown, run)
    call_id, comment = forms.text(told, "call") or None, forms.text(told, "comment") or None
    answer = forms.text(told, "answer")
    value = _value(forms.text(told, "verdict"), forms.text(told, "score"))
    said: list[tuple[str, object, str | None]] = []
    if value is not None:
        said.append((forms.text(told, "name"), value, comment))
    elif comment is not None:
        said.append(("comment", comment, None))
    if answer:
        said.append(("demonstration", answer, None))
    if not said:
        raise BadRequest("the form says nothing: choose good or bad, give a score, a comment or a corrected answer.")
    for name, what, beside in said:
        tags = {"by": steering.who(caller_of(request))}
        await steering.note(shown.hone, trajectory_id, name, what, comment=beside, call_id=call_id, tags=tags)
    return forms.back_to(f"{_path(trajectory_id)}#feedback")


@post("/runs/{run:str}/tags", include_in_schema=False)
async def change_tag(shown: ForPages, request: AnyRequest, run: Name) -> Response[None]:
    """Set a tag of a run, or take one away."""
    told = await forms.fields(request)
    trajectory_id = await _run(shown, run)
    kept = shown.hone.recorder.redaction.value
    value = None if forms.text(told, "remove") else str(kept(forms.text(told, "value")))
    try:
        await set_tag(shown.hone.project, trajectory_id, forms.text(told, "tag"), value)
    except ValueError as e:
        raise BadRequest(f"{e}.", param="tag") from e
    return forms.back_to(f"{_path(trajectory_id)}#tags")


@get("/runs/{run:str}/delete", include_in_schema=False)
async def ask_delete(shown: ForPages, request: AnyRequest, run: Name) -> Response[str]:
    """What would go with a run."""
    return render(request, "run_delete.html", run=await load_trajectory(shown.project.store, await _run(shown, run)))


@post("/runs/{run:str}/delete", include_in_schema=False)
async def delete_run(shown: ForPages, request: AnyRequest, run: Name) -> Response[str]:
    """Delete a run for good. It must have ended."""
    told = await forms.fields(request)
    if forms.text(told, "sure") != "yes":
        raise BadRequest("a run is deleted from the page that says what goes with it: open that first.")
    trajectory_id = await _run(shown, run)
    why = ", ".join(filter(None, (forms.text(told, "why")[:500], f"by {steering.who(caller_of(request))}")))
    try:
        gone = await deletion.delete_trajectory(shown.hone.project, trajectory_id, why)
    finally:
        erased = await deletion.erase(shown.hone.project.store)
    return render(request, "run_deleted.html", gone=gone, erased=erased)


async def _run(shown: Shown, run: str) -> str:
    return await find_trajectory(shown.hone.project, run)


def _path(trajectory_id: str) -> str:
    return f"/hone/runs/{quote(trajectory_id, safe='')}"


def _value(verdict: str, score: str) -> bool | float | None:
    """What a run is said to be worth; None: nothing is said. Raises BadRequest."""
    if not score:
        return _VERDICTS.get(verdict)
    try:
        value = float(score)
    except ValueError as e:
        raise BadRequest(f"the score {score[:100]!r} is no number.", param="score") from e
    if not math.isfinite(value):
        raise BadRequest("the score must be finite.", param="score")
    return value
