"""The search of every page: an id leads to the page of what it names, words to the trajectories that contain them.

Refuses: what an id names (`recorder.views.lists.id_lookup`), and which trajectories match (`recorder.search`).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlencode

from litestar import Response, get
from litestar.params import FromQuery
from litestar.status_codes import HTTP_302_FOUND

from proxy.api.lists import ListQuery, load_trajectory_page
from proxy.api.route_parts import AnyRequest
from proxy.attribution.hints import session_names
from proxy.dashboard.pages.lists import GROUPS, SEARCH, TRAJECTORIES
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from recorder.search.terms import parse_query
from recorder.views.lists.filters import MOST_CHARS
from recorder.views.lists.id_lookup import NamedObject, ObjectKind, find_object

_UNSTORED: Final = re.compile("[\x00\ud800-\udfff]")  # no database holds them, so that no word has them
# The header's name in front of an id, as a terminal or a log shows both.
_HEADER: Final = re.compile(r"x-hone-(?:call|trajectory|group|version)\s*:\s*", re.IGNORECASE)

_FOLDERS: Final = {
    ObjectKind.TRAJECTORY: TRAJECTORIES,
    ObjectKind.GROUP: GROUPS,
    ObjectKind.VERSION: "/hone/versions",
    ObjectKind.SESSION: "/hone/sessions",
}


@get("/search", include_in_schema=False)
async def search_page(context: ForPages, request: AnyRequest, q: FromQuery[str] = "") -> Response[str] | Response[None]:
    """Redirect to what the search finds; without a result, the page that says what was looked for."""
    text = _UNSTORED.sub(" ", q)[:MOST_CHARS].strip()  # the rest is ignored
    if (onward := await _found(context, text)) is not None:
        return Response(None, status_code=HTTP_302_FOUND, headers={"location": onward})
    return render_page(request, "search.html", text=text, is_empty=not parse_query(text).wanted)


async def _found(context: PageContext, text: str) -> str | None:
    """The address of the page to open; None: nothing has this id or contains these words."""
    name = _HEADER.sub("", text, count=1)
    named = await find_object(context.project, name, session_names(name))
    if named is not None:
        return object_address(named)
    if not parse_query(text).wanted:
        return None
    words = [(SEARCH, text)]
    page = await load_trajectory_page(context.project, ListQuery(words, None, 1))
    return f"{TRAJECTORIES}?{urlencode(words)}" if page.trajectories or page.hidden else None


def object_address(named: NamedObject) -> str:
    """The address of an object's page."""
    if named.kind is ObjectKind.CALL:
        return f"{TRAJECTORIES}/{quote(named.trajectory_id or '', safe='')}/calls/{quote(named.id, safe='')}"
    return f"{_FOLDERS[named.kind]}/{quote(named.id, safe='/@')}"
