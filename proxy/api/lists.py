"""Lists over /hone/v1: runs and groups, newest first, narrowed by the words that the pages and the terminal take too.

Owns: these routes, what /schema says of their words, and reading a query for whoever lists. Refuses: what the words
mean (`recorder.views.lists.filters`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from litestar import Response, get
from litestar.openapi.spec import OpenAPIType, Operation, Parameter, Schema

from proxy.api.route_parts import AnyRequest, Injected, json_response, response_spec
from proxy.errors import BadRequest
from recorder.search.matches import Snippet, load_snippets
from recorder.store.database import Project
from recorder.views.lists.filters import (
    GROUP_FILTER_PARAMS,
    TRAJECTORY_FILTER_PARAMS,
    FilterParam,
    parse_group_filter,
    parse_trajectory_filter,
)
from recorder.views.lists.groups import GroupLine, list_groups
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories

MOST: Final = 200  # lines of a page
USUAL: Final = 50


@dataclass(frozen=True, slots=True)
class TrajectoryPage:
    """A page of runs. `next`: what the following page begins `before`; null: there is none.

    `looked_at`: the page is not full, because so many runs were looked at for it, and there are more. `load_snippets`:
    by run, the words around what was searched for.
    """

    trajectories: Sequence[TrajectoryLine]
    next: str | None
    looked_at: int | None
    snippets: Mapping[str, Snippet]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups. `next`: what the following page begins `before`; null: there is none.

    `looked_at`: the page is not full, because so many groups were looked at for it, and there are more.
    """

    groups: Sequence[GroupLine]
    next: str | None
    looked_at: int | None


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A query of a list: its words with their values, where its page begins, and how long it is."""

    said: Sequence[tuple[str, str]]
    before: str | None
    limit: int


def parse_list_query(request: AnyRequest) -> ListQuery:
    """What a request asks of a list. Raises BadRequest."""
    query = [(name, str(value)) for name, value in request.query_params.multi_items()]
    said = [(name, value) for name, value in query if name not in _PAGING]
    paging = {name: value.strip() for name, value in query if name in _PAGING and value.strip()}
    return ListQuery(said, paging.get("before"), _limit(paging.get("limit")))


def _limit(said: str | None) -> int:
    if said is None:
        return USUAL
    if not (said.isascii() and said.isdigit() and 1 <= int(said[:9]) <= MOST):
        raise BadRequest(f"limit is {said[:80]!r}: a page has 1 to {MOST} lines.", param="limit")
    return int(said)


_PAGING: Final[Mapping[str, Parameter]] = {
    one.name: one
    for one in (
        Parameter(
            "before",
            "query",
            Schema(type=OpenAPIType.STRING),
            "Those before this place: the `next` of the page before.",
        ),
        Parameter(
            "limit", "query", Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=MOST, default=USUAL), "How many."
        ),
    )
}


def _parameter(word: FilterParam) -> Parameter:
    one = Schema(type=OpenAPIType.STRING, enum=[*word.takes, ""] if word.takes else None)  # as an empty field of a form
    schema = Schema(type=OpenAPIType.ARRAY, items=one) if word.many else one
    return Parameter(word.name, "query", schema, word.about)


def _parameters(words: Mapping[str, FilterParam]) -> list[Parameter]:
    return [*map(_parameter, words.values()), *_PAGING.values()]


@dataclass
class _TrajectoryLists(Operation):
    """The words of runs are read from the query all at once, so the framework does not know them."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(TRAJECTORY_FILTER_PARAMS))


@dataclass
class _GroupLists(Operation):
    """As `_TrajectoryLists`, with the words of groups."""

    def __post_init__(self) -> None:
        self.parameters = list(_parameters(GROUP_FILTER_PARAMS))


async def load_trajectory_page(project: Project, query: ListQuery) -> TrajectoryPage:
    """The page of runs that a query asks for. Raises FilterInvalid."""
    wanted = parse_trajectory_filter(query.said)
    page = await list_trajectories(project, wanted, before=query.before, limit=query.limit)
    shown = [line.id for line in page.lines] if wanted.said is not None else []
    around = await load_snippets(project, wanted.said or "", shown)
    return TrajectoryPage(page.lines, page.next, page.looked_at, around)


async def load_group_page(project: Project, query: ListQuery) -> GroupPage:
    """The page of groups that a query asks for. Raises FilterInvalid."""
    page = await list_groups(project, parse_group_filter(query.said), before=query.before, limit=query.limit)
    return GroupPage(page.lines, page.next, page.looked_at)


@get("/hone/v1/trajectories", responses=response_spec(200, TrajectoryPage), operation_class=_TrajectoryLists)
async def show_trajectories(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List runs, newest first: those that all given words are true of. Of `state` and `tag` several may be given.

    An empty value says nothing.
    """
    return json_response(await load_trajectory_page(hone.project, parse_list_query(request)))


@get("/hone/v1/groups", responses=response_spec(200, GroupPage), operation_class=_GroupLists)
async def show_groups(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """List groups, newest first: those that all given words are true of. Of `state` several may be given."""
    return json_response(await load_group_page(hone.project, parse_list_query(request)))
