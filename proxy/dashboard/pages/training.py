"""Training: what it waits for, its steps, its campaigns, and which runs were left out.

Owns: this page. Refuses: the view (`recorder.telling.training`), and training.
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.drawn import of_lessons, of_steps
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.learned.steps import list_step_lines
from recorder.registry.aliases import get_aliases
from recorder.telling.training import STEPS, training

_LEARN: Final = "learn."  # the settings of budgets and hours


@get("/training", include_in_schema=False)
async def training_page(
    shown: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
) -> Response[str]:
    """The page; `alias`: its steps and campaigns alone; `after`: steps before that one."""
    alias = alias or None
    stand = await training(shown.project, shown.stands.loop, alias)
    steps = stand.steps
    if after is not None:
        steps = await list_step_lines(shown.project, alias=alias, after=after, limit=STEPS)
    return render(
        request,
        "training.html",
        stand=stand,
        steps=steps,
        older=steps[-1].id if len(steps) == STEPS else None,
        alias=alias,
        aliases=await get_aliases(shown.project),
        limits=[one for one in shown.stands.settings if one.key.startswith(_LEARN) and one.value is not None],
        charts_of=of_steps(stand.steps),
        lessons=of_lessons(stand.lessons),
    )
