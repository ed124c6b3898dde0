"""Tools: MCP servers, and what became of tool calls.

Owns: this page. Refuses: the figures (`recorder.telling.tooling`).
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages


@get("/tools", include_in_schema=False)
async def tools_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """The page."""
    found = await shown.stands.tools()
    return render(request, "tools.html", servers=found.servers, used=found.used)
