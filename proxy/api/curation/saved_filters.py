"""Saved filters in /hone/v1: list, save, remove. The pages use the check of a query too.

Refuses: what a filter means (`recorder.views.lists.filters`).
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from litestar import Response, delete, get, post
from litestar.params import FromQuery, JSONBody, PathParameter

from proxy.api.actions import HoneActions, caller_id
from proxy.api.curation.bodies import NewFilter
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from proxy.errors import BadRequest
from recorder.curation import saved_filters
from recorder.curation.saved_filters import FilteredList, SavedFilter
from recorder.errors import FilterInvalid
from recorder.views.lists.filters import parse_group_filter, parse_trajectory_filter
from recorder.views.lists.sort_order import Sort, parse_sort

FilterId = Annotated[str, PathParameter(description="The saved filter's id.")]


def clean_query(of: FilteredList, query: str) -> str:
    """Return the query of a list without empty fields and places. Raises FilterInvalid."""
    given = [(name, value.strip()) for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True)]
    kept = [(name, value) for name, value in given if value and name not in ("before", "limit", "sort")]
    sort = parse_sort(next((value for name, value in given if name == "sort"), None))
    if of is FilteredList.TRAJECTORIES:
        parse_trajectory_filter(kept)
    else:
        parse_group_filter(kept)
        if sort is not Sort.TIME:
            raise FilterInvalid("sort: groups are listed by time", "sort")
    return urlencode([*kept, *([] if sort is Sort.TIME else [("sort", sort.value)])])


async def keep_filter(hone: HoneActions, wanted: NewFilter, by: str) -> SavedFilter:
    """Save a filter of a list. Raises BadRequest, FilterInvalid, Conflict."""
    query = clean_query(wanted.list, wanted.query)
    try:
        return await saved_filters.save_filter(hone.project, wanted.list, wanted.name, query, by)
    except ValueError as e:
        raise BadRequest(f"{e}.", param="name" if query else "query") from e


@get("/hone/v1/filters", responses=response_spec(200, list[SavedFilter]))
async def show_filters(hone: Injected, list: FromQuery[FilteredList | None] = None) -> Response[bytes]:  # noqa: A002
    """List the saved filters of a list, or of all lists, by name."""
    return json_response(await saved_filters.list_saved_filters(hone.project, list))


@post("/hone/v1/filters", status_code=200, responses=response_spec(200, SavedFilter))
async def save_filter(hone: Injected, request: AnyRequest, data: JSONBody[NewFilter]) -> Response[bytes]:
    """Save the filters and the order of a list under a name, for everybody of the project."""
    return json_response(await keep_filter(hone, data, caller_id(caller_of(request))))


@delete("/hone/v1/filters/{filter_id:str}", status_code=204, responses=response_spec(204, None))
async def remove_filter(hone: Injected, filter_id: FilterId) -> None:
    """Remove a saved filter."""
    await saved_filters.remove_saved_filter(hone.project, filter_id)
