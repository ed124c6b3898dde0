"""Home: how everything stands, and the newest runs as they move.

Owns: this page. Refuses: the figures (`recorder.telling.status`), and the stream (`proxy.dashboard.live`).
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.route_parts import AnyRequest
from proxy.dashboard import live
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages


@get("/", include_in_schema=False)
async def home_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """The page."""
    return render(request, "home.html", stand=await shown.stands.status(), lines=await live.newest(shown))
