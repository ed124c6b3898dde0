"""Groups: a list that can be narrowed, newest first.

Owns: this page. Refuses: which groups are listed (`recorder.listing`), one group's page.
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.lists import asked
from proxy.api.route_parts import AnyRequest
from proxy.dashboard import forms
from proxy.dashboard.filtering import filters, tidied
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.listing.groups import list_groups
from recorder.listing.offered import offered_of_groups
from recorder.listing.words import GROUP_WORDS, group_filter

PATH = "/hone/groups"


@get("/groups", include_in_schema=False)
async def groups_page(shown: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """The page."""
    tidy = tidied(PATH, list(request.query_params.multi_items()))
    if tidy is not None:
        return forms.back_to(tidy)
    query = asked(request)
    wanted = group_filter(query.said)
    page = await list_groups(shown.store, shown.project_id, wanted, before=query.before, limit=query.limit)
    there = await offered_of_groups(shown.store, shown.project_id)
    offered = {"alias": there.aliases, "version": there.versions, "reason": there.reasons, "campaign": there.campaigns}
    return render(request, "groups.html", page=page, filters=filters(PATH, query, GROUP_WORDS, offered))
