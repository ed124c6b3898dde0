"""The pages Trajectories and Groups, lists with filters; trajectories can be searched and sorted. And one session.

Owns: the filter form and the addresses of a list's pages. Refuses: what a filter means (`recorder.views.lists.filters`)
and which lines match it (`recorder.views.lists`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from litestar import Response, get
from litestar.params import FromPath

from proxy.api.curation.saved_filters import clean_query
from proxy.api.lists import (
    MOST,
    GroupPage,
    ListQuery,
    TrajectoryPage,
    load_group_page,
    load_trajectory_page,
    parse_list_query,
)
from proxy.api.route_parts import AnyRequest, query_words
from proxy.dashboard import forms
from proxy.dashboard.renderer import ForPages, render_page
from proxy.errors import UnknownObject
from recorder.curation.saved_filters import FilteredList, SavedFilter, list_saved_filters
from recorder.views.lists.filter_values import group_filter_values, trajectory_filter_values
from recorder.views.lists.filters import (
    ANY,
    GROUP_FILTER_PARAMS,
    TRAJECTORY_FILTER_PARAMS,
    FilterParam,
    TrajectoryFilter,
)
from recorder.views.lists.paging import MOST_HIDDEN
from recorder.views.lists.sort_order import Sort
from recorder.views.lists.trajectories import list_trajectories

TRAJECTORIES: Final = "/hone/trajectories"
GROUPS: Final = "/hone/groups"
SEARCH: Final = "search"  # the parameter of the search field
# Labels of parameters with names that do not explain them.
_LABELS: Final = {"source": "attributed by", "reason": "excluded by reason", "tool_error": "tool errors"}


@dataclass(frozen=True, slots=True)
class FilterField:
    """One field of the form. With `options` a value is selected from them; `several`: more than one."""

    name: str
    label: str
    about: str
    values: Sequence[str]
    options: Sequence[str]
    several: bool

    @property
    def value(self) -> str:
        """Its value, where it takes at most one; "" if it is empty."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The filter form of a list as it was sent, and the addresses of the list's pages."""

    path: str
    query: ListQuery
    fields: Sequence[FilterField]
    list: FilteredList
    saved: Sequence[SavedFilter] = ()
    datasets: Sequence[str] = ()  # names that exist
    search_name: str = SEARCH  # of the search field
    most_hidden: int = MOST_HIDDEN  # as many are counted of what the list hides

    @property
    def query_text(self) -> str:
        """The filters and the order, as they are saved; "" without any."""
        return clean_query(self.list, self.address().partition("?")[2])

    @property
    def active(self) -> SavedFilter | None:
        """The saved filter that the list has now, if any."""
        now = sorted(parse_qsl(self.query_text))
        return next((one for one in self.saved if sorted(parse_qsl(one.query)) == now), None)

    @property
    def used(self) -> bool:
        """Whether any filter is set."""
        return bool(self.query.filters)

    @property
    def folded(self) -> bool:
        """Whether the fields below the search are all empty."""
        return all(name == SEARCH for name, _ in self.query.filters)

    @property
    def search(self) -> str:
        """The words that are searched for; "" without a search."""
        return next((value for name, value in self.query.filters if name == SEARCH), "")

    def address(self, before: str | None = None) -> str:
        """The address of the page after a place, with the same filters and order; without one, of the first page."""
        return self._address([*self.query.filters, *self._sort(self.query.sort)], before)

    def address_of_any_origin(self) -> str:
        """The address of the first page with the same filters and all origins."""
        return self._address([*self.query.filters, ("origin", ANY), *self._sort(self.query.sort)])

    def sorted_by(self, sort: str) -> str:
        """The address of the first page with the same filters in another order."""
        return self._address([*self.query.filters, *self._sort(Sort(sort))])

    def _sort(self, sort: Sort) -> Sequence[tuple[str, str]]:
        return [] if sort is Sort.TIME else [("sort", sort.value)]

    def _address(self, words: Sequence[tuple[str, str]], before: str | None = None) -> str:
        filled = [*words, *([] if before is None else [("before", before)])]
        return f"{self.path}?{urlencode(filled)}" if filled else self.path


def build_filter_form(
    path: str,
    query: ListQuery,
    params: Mapping[str, FilterParam],
    offered: Mapping[str, Sequence[str]],
    saved: Sequence[SavedFilter] = (),
) -> FilterForm:
    """The form of a list. `offered`: the existing values of each parameter; `saved`: its saved filters."""
    fields = [_field(param, query, offered.get(param.name, ())) for param in params.values() if param.name != SEARCH]
    in_order = sorted(fields, key=lambda field: not (field.several and field.options))
    list_ = FilteredList.TRAJECTORIES if path == TRAJECTORIES else FilteredList.GROUPS
    return FilterForm(path, query, in_order, list_, saved, offered.get("dataset", ()))


def _field(param: FilterParam, query: ListQuery, offered: Sequence[str]) -> FilterField:
    values = [value for name, value in query.filters if name == param.name]
    options = param.takes or offered
    missing = [
        value for value in values if options and value not in options
    ]  # in the query, and no longer in the store
    label = _LABELS.get(param.name) or param.name.replace("_", " ")
    return FilterField(param.name, label, param.about, values, [*options, *missing], param.many)


def tidy_address(path: str, query: Sequence[tuple[str, str]]) -> str | None:
    """The address without empty fields, which forms send; None if it has none."""
    filled = [(name, value.strip()) for name, value in query if value.strip()]
    if len(filled) == len(query):
        return None
    return f"{path}?{urlencode(filled)}" if filled else path


@get("/trajectories", include_in_schema=False)
async def trajectories_page(context: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The list of trajectories."""
    if (tidy := _tidied(TRAJECTORIES, request)) is not None:
        return tidy
    query = parse_list_query(request)
    page = await load_trajectory_page(context.project, query)
    values = await trajectory_filter_values(context.project)
    offered = {
        "alias": values.aliases,
        "version": values.versions,
        "reason": values.reasons,
        "source": values.sources,
        "client": values.clients,
        "key": values.keys,
        "tool": values.tools,
        "finish_reason": values.finish_reasons,
        "dataset": values.datasets,
    }
    saved = await list_saved_filters(context.project, FilteredList.TRAJECTORIES)
    return _page(request, "trajectories.html", query, page, page.trajectories, offered, saved)


@get("/groups", include_in_schema=False)
async def groups_page(context: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The list of groups."""
    if (tidy := _tidied(GROUPS, request)) is not None:
        return tidy
    query = parse_list_query(request)
    page = await load_group_page(context.project, query)
    values = await group_filter_values(context.project)
    offered = {
        "alias": values.aliases,
        "version": values.versions,
        "reason": values.reasons,
        "campaign": values.campaigns,
    }
    saved = await list_saved_filters(context.project, FilteredList.GROUPS)
    return _page(request, "groups.html", query, page, page.groups, offered, saved)


@get("/sessions/{name:path}", include_in_schema=False)
async def session_page(context: ForPages, request: AnyRequest, name: FromPath[Path]) -> Response[str]:
    """The trajectories of a client's session, in order. Raises UnknownObject."""
    session = str(name).removeprefix("/")
    page = await list_trajectories(context.project, TrajectoryFilter(session=session), limit=MOST)
    if not page.lines:
        raise UnknownObject(f"there is no session {session[:200]!r}.")
    lines = list(reversed(page.lines))
    return render_page(request, "session.html", session=session, lines=lines, more=page.next is not None)


def _tidied(path: str, request: AnyRequest) -> Response[None] | None:
    """A redirect to the address without empty fields; None if it has none."""
    tidy = tidy_address(path, query_words(request))
    return None if tidy is None else forms.back_to(tidy)


def _page(
    request: AnyRequest,
    template: str,
    query: ListQuery,
    page: TrajectoryPage | GroupPage,
    lines: Sequence[object],
    offered: Mapping[str, Sequence[str]],
    saved: Sequence[SavedFilter],
) -> Response[str]:
    is_trajectories = isinstance(page, TrajectoryPage)
    path, params = (TRAJECTORIES, TRAJECTORY_FILTER_PARAMS) if is_trajectories else (GROUPS, GROUP_FILTER_PARAMS)
    form = build_filter_form(path, query, params, offered, saved)
    return render_page(request, template, page=page, lines=lines, filters=form, searched=is_trajectories)
