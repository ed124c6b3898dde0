"""Lists in /hone/v1: trajectories and groups, newest first, with the filters of the pages and the terminal.

Owns: these routes, their filters in /schema, and parsing a list's query (the pages use it too). Refuses: what the
filters mean (`recorder.views.lists.filters`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from litestar import Response, get
from litestar.openapi.spec import OpenAPIType, Operation, Parameter, Schema

from proxy.api.route_parts import AnyRequest, Injected, json_response, query_words, response_spec
from proxy.errors import BadRequest
from recorder.errors import FilterInvalid
from recorder.search.matches import Snippet, load_snippets
from recorder.store.database import Project
from recorder.views.lists.filters import (
    GROUP_FILTER_PARAMS,
    TRAJECTORY_FILTER_PARAMS,
    FilterParam,
    parse_group_filter,
    parse_trajectory_filter,
    with_usual_groups,
    with_usual_trajectories,
)
from recorder.views.lists.groups import GroupLine, list_groups
from recorder.views.lists.sort_order import Sort, parse_sort
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories

MOST: Final = 200  # lines of a page
USUAL: Final = 50


@dataclass(frozen=True, slots=True)
class TrajectoryPage:
    """A page of trajectories. `next`: pass it as `before` to get the next page; null: this is the last.

    `looked_at`: the page is not full, because the scan stopped after this number of trajectories; there may be more.
    `hidden`: how many more match and have origin shadow, which a list shows only where `origin` says so; counted up to
    10,000. `snippets`: by trajectory id, the text around the search's matches. `sorted_over`: with `sort`, the list has
    only so many of the newest matches; null: it has all.
    """

    trajectories: Sequence[TrajectoryLine]
    next: str | None
    looked_at: int | None
    hidden: int
    snippets: Mapping[str, Snippet]
    sorted_over: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups. `next`: pass it as `before` to get the next page; null: this is the last.

    `looked_at`: the page is not full, because the scan stopped after this number of groups; there may be more.
    `hidden`: how many more match and are of shadow answers or pairs of a gate, as in a page of trajectories.
    """

    groups: Sequence[GroupLine]
    next: str | None
    looked_at: int | None
    hidden: int


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A list's query: its filters as names and values, where the page begins, its length, and its order."""

    filters: Sequence[tuple[str, str]]
    before: str | None
    limit: int
    sort: Sort = Sort.TIME


def parse_list_query(request: AnyRequest) -> ListQuery:
    """Parse the query of a list. Raises BadRequest, FilterInvalid."""
    query = query_words(request)
    filters = [(name, value) for name, value in query if name not in _PAGING]
    paging = {name: value.strip() for name, value in query if name in _PAGING and value.strip()}
    return ListQuery(filters, paging.get("before"), _limit(paging.get("limit")), parse_sort(paging.get("sort")))


def _limit(text: str | None) -> int:
    if text is None:
        return USUAL
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST):
        raise BadRequest(f"limit is {text[:80]!r}: a page has 1 to {MOST} lines.", param="limit")
    return int(text)


_PAGING: Final[Mapping[str, Parameter]] = {
    one.name: one
    for one in (
        Parameter(
            "before",
            "query",
            Schema(type=OpenAPIType.STRING),
            "The `next` of the previous page.",
        ),
        Parameter(
            "limit", "query", Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=MOST, default=USUAL), "How many."
        ),
        Parameter(
            "sort",
            "query",
            Schema(type=OpenAPIType.STRING, enum=[*(one.value for one in Sort), ""]),
            "The order. Default: time, newest first. By any other, the largest of the newest 10,000 matches first.",
        ),
    )
}


def query_parameter(param: FilterParam) -> Parameter:
    """Return a filter as /schema declares it."""
    one = Schema(
        type=OpenAPIType.STRING, enum=[*param.takes, ""] if param.takes else None
    )  # as an empty field of a form
    schema = Schema(type=OpenAPIType.ARRAY, items=one) if param.many else one
    return Parameter(param.name, "query", schema, param.about)


def _parameters(params: Mapping[str, FilterParam], *, sorts: bool) -> list[Parameter]:
    paging = [one for name, one in _PAGING.items() if sorts or name != "sort"]
    return [*map(query_parameter, params.values()), *paging]


@dataclass
class _TrajectoryLists(Operation):
    """Declares the filters of trajectories: the handler reads them from the query itself, unknown to the framework."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(TRAJECTORY_FILTER_PARAMS, sorts=True))


@dataclass
class _GroupLists(Operation):
    """As `_TrajectoryLists`, for groups."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(GROUP_FILTER_PARAMS, sorts=False))


async def load_trajectory_page(project: Project, query: ListQuery) -> TrajectoryPage:
    """Load the page of trajectories that a query selects. Raises FilterInvalid."""
    filter_ = with_usual_trajectories(parse_trajectory_filter(query.filters))
    page = await list_trajectories(project, filter_, before=query.before, limit=query.limit, sort=query.sort)
    ids = [line.id for line in page.lines] if filter_.search is not None else []
    around = await load_snippets(project, filter_.search or "", ids)
    return TrajectoryPage(page.lines, page.next, page.looked_at, page.hidden, around, page.sorted_over)


async def load_group_page(project: Project, query: ListQuery) -> GroupPage:
    """Load the page of groups that a query selects. Raises FilterInvalid."""
    if query.sort is not Sort.TIME:
        raise FilterInvalid("sort: groups are listed by time", "sort")
    filter_ = with_usual_groups(parse_group_filter(query.filters))
    page = await list_groups(project, filter_, before=query.before, limit=query.limit)
    return GroupPage(page.lines, page.next, page.looked_at, page.hidden)


@get("/hone/v1/trajectories", responses=response_spec(200, TrajectoryPage), operation_class=_TrajectoryLists)
async def show_trajectories(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List the trajectories that match all filters, newest first, or as `sort` says.

    `state`, `origin` and `tag` may be repeated.

    An empty value is ignored. Without `origin` and `group`, those of origin shadow are hidden and counted.
    """
    return json_response(await load_trajectory_page(hone.project, parse_list_query(request)))


@get("/hone/v1/groups", responses=response_spec(200, GroupPage), operation_class=_GroupLists)
async def show_groups(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List the groups that match all filters, newest first. `state` and `origin` may be repeated.

    An empty value is ignored. Without `origin`, groups of shadow answers and pairs of a gate are hidden and counted.
    """
    return json_response(await load_group_page(hone.project, parse_list_query(request)))
