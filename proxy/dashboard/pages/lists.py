"""Runs and groups: lists that can be narrowed, newest first; runs are searched too.

Owns: these two pages. Refuses: which runs and groups are listed (`recorder.listing`), the page of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from litestar import Response, get

from proxy.api.lists import Asked, Groups, Runs, asked, listed_groups, listed_runs
from proxy.api.route_parts import AnyRequest
from proxy.dashboard import forms
from proxy.dashboard.filtering import filters, tidied
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.listing.offered import offered_of_groups, offered_of_runs
from recorder.listing.words import GROUP_WORDS, RUN_WORDS

RUNS: Final = "/hone/runs"
GROUPS: Final = "/hone/groups"


@get("/runs", include_in_schema=False)
async def runs_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The runs."""
    if (tidy := _tidied(RUNS, request)) is not None:
        return tidy
    query = asked(request)
    page = await listed_runs(shown.project, query)
    there = await offered_of_runs(shown.project)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "source": there.sources}
    return _page(request, "runs.html", query, page, page.trajectories, offered)


@get("/groups", include_in_schema=False)
async def groups_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The groups."""
    if (tidy := _tidied(GROUPS, request)) is not None:
        return tidy
    query = asked(request)
    page = await listed_groups(shown.project, query)
    there = await offered_of_groups(shown.project)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "campaign": there.campaigns}
    return _page(request, "groups.html", query, page, page.groups, offered)


def _tidied(path: str, request: AnyRequest) -> Response[None] | None:
    """The way to the same list, where its address has fields that say nothing."""
    tidy = tidied(path, list(request.query_params.multi_items()))
    return None if tidy is None else forms.back_to(tidy)


def _page(
    request: AnyRequest,
    template: str,
    query: Asked,
    page: Runs | Groups,
    lines: Sequence[object],
    offered: Mapping[str, Sequence[str]],
) -> Response[str]:
    of_runs = isinstance(page, Runs)
    path, words = (RUNS, RUN_WORDS) if of_runs else (GROUPS, GROUP_WORDS)
    form = filters(path, query, words, offered)
    return render(request, template, page=page, lines=lines, filters=form, searched=of_runs)
