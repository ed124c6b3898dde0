"""Steps and how training stands, over /hone/v1: read.

Owns: these routes. Refuses: training (the learner's), and moving versions.
"""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.route_parts import Injected, answers, as_json
from proxy.api.standing import ForStanding
from recorder.learned.steps import StepLine, list_step_lines
from recorder.telling.training import Training, training


@get("/hone/v1/steps", responses=answers(200, list[StepLine]))
async def show_steps(
    hone: Injected, alias: FromQuery[str | None] = None, after: FromQuery[str | None] = None
) -> Response[bytes]:
    """Training steps, newest first, fifty at a time. `after`: the id of the last one that is known."""
    return as_json(await list_step_lines(hone.project, alias=alias, after=after))


@get("/hone/v1/training", responses=answers(200, Training))
async def show_training(hone: Injected, stands: ForStanding, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """How training stands: what is waited for, what was spent, the newest steps, campaigns, runs left out by reason."""
    return as_json(await training(hone.project, stands.loop, alias))
