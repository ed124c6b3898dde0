"""What is done with the selected lines of Trajectories, and the filters that people keep above a list.

Owns: these forms, the question before a deletion, and the page with what became of each trajectory. Refuses: the
actions themselves, their scopes and limits (`proxy.api.curation`).
"""

from __future__ import annotations

import logging
from typing import Final

from litestar import Response, post
from litestar.datastructures import FormMultiDict
from pydantic import ValidationError

from proxy.api.actions import caller_id
from proxy.api.curation.bodies import NewFilter, Outcome, Selection, SelectionAction
from proxy.api.curation.saved_filters import keep_filter
from proxy.api.curation.selection import apply_selection
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.errors import BadRequest
from recorder.curation import datasets, saved_filters
from recorder.registry.keys import Scope
from recorder.views.lists.titles import load_tasks

PATH: Final = "/hone/selection"
SAVE: Final = "/hone/filters"
REMOVE: Final = "/hone/filters/remove"
_FIELDS: Final = ("tag", "value", "dataset", "reason")
log = logging.getLogger(__name__)


@post("/selection", include_in_schema=False)
async def change_selection(context: ForPages, request: AnyRequest) -> Response[str]:
    """Do one thing with the selected trajectories, and show what became of each. Raises BadRequest, Forbidden."""
    form = await forms.read_fields(request)
    wanted, caller = read_selection(form), caller_of(request)
    back = forms.local_path(forms.field_text(form, "back"))
    if wanted.action is SelectionAction.DELETE and forms.field_text(form, "sure") != "yes":
        caller.require(Scope.ADMIN, "deleting trajectories")
        tasks = await _tasks(context, wanted.trajectory_ids)
        return render_page(request, "selection_delete.html", back=back, ids=wanted.trajectory_ids, tasks=tasks)
    if wanted.action is SelectionAction.DATASET and wanted.dataset:
        caller.require(Scope.ADMIN, "changing a dataset")
        await _ensure_dataset(context, wanted.dataset, caller_id(caller))
    tasks = await _tasks(context, wanted.trajectory_ids)  # before they are deleted
    result = await apply_selection(context.hone, caller, wanted)
    others = [one for one in result.answers if one.outcome is not Outcome.DONE]
    return render_page(
        request, "selection.html", result=result, back=back, dataset=wanted.dataset, others=others, tasks=tasks
    )


def read_selection(form: FormMultiDict) -> Selection:
    """The selection that a form sends. Raises BadRequest."""
    ids = [str(one) for one in form.getall("trajectory", [])]
    if not ids:
        raise BadRequest("no trajectory is selected: go back and select at least one.", param="trajectory")
    given = {name: text for name in _FIELDS if (text := forms.field_text(form, name))}
    try:
        return Selection.model_validate({"trajectory_ids": ids, "action": forms.field_text(form, "action"), **given})
    except ValidationError as e:
        wrong = e.errors()[0]
        param = ".".join(map(str, wrong["loc"]))
        raise BadRequest(f"the form cannot be read: {param}: {wrong['msg']}.", param=param) from e


async def _ensure_dataset(context: PageContext, name: str, by: str) -> None:
    if all(one.name != name for one in await datasets.list_datasets(context.hone.project)):
        await datasets.create_dataset(context.hone.project, name, by)


async def _tasks(context: PageContext, ids: list[str]) -> dict[str, str]:
    return await load_tasks(context.project.store, runs=ids)


@post("/filters", include_in_schema=False)
async def save_filter(context: ForPages, request: AnyRequest) -> Response[None]:
    """Save the filters of a list under a name. Raises BadRequest, FilterInvalid, Conflict."""
    form = await forms.read_fields(request)
    given = {name: forms.field_text(form, name) for name in ("list", "name", "query")}
    try:
        wanted = NewFilter.model_validate(given)
    except ValidationError as e:
        raise BadRequest("the form cannot be read: open the list again and send it from there.") from e
    kept = await keep_filter(context.hone, wanted, caller_id(caller_of(request)))
    return forms.back_to(f"/hone/{kept.list.value}?{kept.query}")


@post("/filters/remove", include_in_schema=False)
async def remove_filter(context: ForPages, request: AnyRequest) -> Response[None]:
    """Remove a saved filter. Raises NotFound."""
    form = await forms.read_fields(request)
    await saved_filters.remove_saved_filter(context.hone.project, forms.field_text(form, "filter"))
    return forms.back_to(forms.local_path(forms.field_text(form, "back")))
