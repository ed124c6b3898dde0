"""Groups that a version and its ancestors were trained on, drawn at random.

Owns: the draw. Refuses: which of their trajectories are of use, and what for.
"""

from __future__ import annotations

import random
from typing import Final

from sqlalchemy import select

from recorder.registry.ancestry import ancestry_ages
from recorder.states import StepState
from recorder.store.database import Store
from recorder.store.schema import step_groups, steps

LOOKED_AT: Final = 20_000  # of the newest


async def draw_trained_groups(store: Store, version_id: str, number: int, seed: str) -> list[str]:
    """Return at most `number` ids of groups that a version's line was trained on, in random order.

    Each of the newest `LOOKED_AT` groups is equally likely, whatever its age; the same seed draws the same ones. The
    groups of a version that was rejected or rolled back are in no line.
    """
    line = ancestry_ages(version_id).subquery()
    query = (
        select(step_groups.c.group_id)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .join(line, line.c.id == steps.c.version_id)
        .where(steps.c.state == StepState.DONE)
        .order_by(steps.c.number.desc(), step_groups.c.group_id)
        .limit(LOOKED_AT)
    )
    async with store.read() as conn:
        found = list(dict.fromkeys((await conn.execute(query)).scalars()))
    return random.Random(seed).sample(found, min(number, len(found)))
