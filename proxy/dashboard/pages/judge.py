"""The judge: what it scored and what it could not, its time, tokens and money, agreement, the last groups.

Owns: this page. Refuses: the figures (`recorder.telling.judging`).
"""

from __future__ import annotations

from litestar import Response, get

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages


@get("/judge", include_in_schema=False)
async def judge_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """The page."""
    return render(request, "judge.html", judging=await shown.stands.judging())
