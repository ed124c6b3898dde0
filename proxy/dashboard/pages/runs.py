"""Runs: a list that can be narrowed and searched, newest first.

Owns: this page. Refuses: which runs are listed (`recorder.listing`), one run's page.
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.lists import asked, listed_runs
from proxy.api.route_parts import AnyRequest
from proxy.dashboard import forms
from proxy.dashboard.filtering import filters, tidied
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.listing.offered import offered_of_runs
from recorder.listing.words import RUN_WORDS

PATH = "/hone/runs"


@get("/runs", include_in_schema=False)
async def runs_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The page."""
    tidy = tidied(PATH, list(request.query_params.multi_items()))
    if tidy is not None:
        return forms.back_to(tidy)
    query = asked(request)
    page = await listed_runs(shown.store, shown.project_id, query)
    there = await offered_of_runs(shown.store, shown.project_id)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "source": there.sources}
    return render(request, "runs.html", page=page, filters=filters(PATH, query, RUN_WORDS, offered))
