"""The form of a list's filters, and the addresses of its pages.

Owns: which fields there are, what each shows and offers. Refuses: what a word means (`recorder.views.lists.filters`).

Runs and groups: lists that can be narrowed, newest first; runs are searched too.

Owns: these two pages. Refuses: which runs and groups are listed (`recorder.views.lists`), the page of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from litestar import Response, get

from proxy.api.lists import (
    GroupPage,
    ListQuery,
    TrajectoryPage,
    load_group_page,
    load_trajectory_page,
    parse_list_query,
)
from proxy.api.route_parts import AnyRequest
from proxy.dashboard import forms
from proxy.dashboard.page_context import ForPages
from proxy.dashboard.renderer import render_page
from recorder.views.lists.filter_values import group_filter_values, trajectory_filter_values
from recorder.views.lists.filters import GROUP_FILTER_PARAMS, TRAJECTORY_FILTER_PARAMS, FilterParam

# Where the word alone would not say it to somebody who sees it for the first time.
_LABELS: Final = {"source": "attributed by", "reason": "left out by reason", "tool_error": "tool errors"}


@dataclass(frozen=True, slots=True)
class FilterField:
    """One field. With `options` it is chosen from; `several` of them may be."""

    name: str
    label: str
    about: str
    values: Sequence[str]
    options: Sequence[str]
    several: bool

    @property
    def value(self) -> str:
        """What it shows where one value is all that it takes."""
        return self.values[0] if self.values else ""


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A list's form as it was sent, and where its pages lie."""

    path: str
    asked: ListQuery
    fields: Sequence[FilterField]

    @property
    def used(self) -> bool:
        """Whether the list is narrowed at all."""
        return bool(self.asked.filters)

    @property
    def folded(self) -> bool:
        """Whether none of the fields below the search is used."""
        return all(name == "search" for name, _ in self.asked.filters)

    @property
    def search(self) -> str:
        """What is searched for."""
        return next((value for name, value in self.asked.filters if name == "search"), "")

    def address(self, before: str | None = None) -> str:
        """The page of these filters that begins before an id; without one, the newest."""
        said = [*self.asked.filters, *([] if before is None else [("before", before)])]
        return f"{self.path}?{urlencode(said)}" if said else self.path


def build_filter_form(
    path: str, asked: ListQuery, words: Mapping[str, FilterParam], offered: Mapping[str, Sequence[str]]
) -> FilterForm:
    """The form of a list; `offered`: the values that there are, by word."""
    fields = [_field(word, asked, offered.get(word.name, ())) for word in words.values() if word.name != "search"]
    return FilterForm(path, asked, sorted(fields, key=lambda field: not (field.several and field.options)))


def _field(word: FilterParam, asked: ListQuery, offered: Sequence[str]) -> FilterField:
    values = [value for name, value in asked.filters if name == word.name]
    options = word.takes or offered
    missing = [value for value in values if options and value not in options]  # asked for, and there is none now
    label = _LABELS.get(word.name) or word.name.replace("_", " ")
    return FilterField(word.name, label, word.about, values, [*options, *missing], word.many)


def tidy_address(path: str, query: Sequence[tuple[str, str]]) -> str | None:
    """The address without the fields that a form sends empty; None: it is so already."""
    kept = [(name, value.strip()) for name, value in query if value.strip()]
    if len(kept) == len(query):
        return None
    return f"{path}?{urlencode(kept)}" if kept else path


RUNS: Final = "/hone/runs"
GROUPS: Final = "/hone/groups"


@get("/runs", include_in_schema=False)
async def trajectories_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The runs."""
    if (tidy := _tidied(RUNS, request)) is not None:
        return tidy
    query = parse_list_query(request)
    page = await load_trajectory_page(shown.project, query)
    there = await trajectory_filter_values(shown.project)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "source": there.sources}
    return _page(request, "runs.html", query, page, page.trajectories, offered)


@get("/groups", include_in_schema=False)
async def groups_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The groups."""
    if (tidy := _tidied(GROUPS, request)) is not None:
        return tidy
    query = parse_list_query(request)
    page = await load_group_page(shown.project, query)
    there = await group_filter_values(shown.project)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "campaign": there.campaigns}
    return _page(request, "groups.html", query, page, page.groups, offered)


def _tidied(path: str, request: AnyRequest) -> Response[None] | None:
    """The way to the same list, where its address has fields that say nothing."""
    tidy = tidy_address(path, list(request.query_params.multi_items()))
    return None if tidy is None else forms.back_to(tidy)


def _page(
    request: AnyRequest,
    template: str,
    query: ListQuery,
    page: TrajectoryPage | GroupPage,
    lines: Sequence[object],
    offered: Mapping[str, Sequence[str]],
) -> Response[str]:
    of_runs = isinstance(page, TrajectoryPage)
    path, words = (RUNS, TRAJECTORY_FILTER_PARAMS) if of_runs else (GROUPS, GROUP_FILTER_PARAMS)
    form = build_filter_form(path, query, words, offered)
    return render_page(request, template, page=page, lines=lines, filters=form, searched=of_runs)
