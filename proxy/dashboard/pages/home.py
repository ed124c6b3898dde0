"""Home: how everything stands.

Owns: this page. Refuses: the figures (`recorder.telling.figures`).
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.registry.aliases import get_aliases
from recorder.telling.figures import figures


@get("/", include_in_schema=False)
async def home_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """The page."""
    stand = await figures(shown.store, shown.project_id, shown.recorder_settings)
    return render(request, "home.html", stand=stand, aliases=await get_aliases(shown.store, shown.project_id))
