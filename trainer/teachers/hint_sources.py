"""Where hints come from, beside the trajectory itself: explanations of judges, and what other trajectories recorded.

Owns: the queries, and which other trajectories may give hints. Refuses: scores themselves
(`recorder.queue.judging.scores`), and follow-ups (`recorder.views.follow_ups`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select

from recorder.queue.judging.turn_values import turn_of
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.store.schema import groups, score_parts, trajectories
from recorder.views.trajectories.shapes import TrajectoryView
from trainer.teachers.hint_text import CRITIQUE, HintPart
from trainer.teachers.turns import CallChoice


async def list_teaching(store: Store, ids: Collection[str]) -> set[str]:
    """Return those of some trajectories whose texts a model may learn from: their purpose is training, and they are in
    no drift set.
    """
    if not ids:
        return set()
    t = trajectories.c
    query = select(t.id).where(t.id.in_(sorted(ids)), t.purpose == Purpose.TRAIN, t.drift_set_at.is_(None))
    async with store.read() as conn:
        return set((await conn.execute(query)).scalars())


async def load_critiques(store: Store, views: Sequence[TrajectoryView]) -> dict[CallChoice, list[HintPart]]:
    """Return by answer the explanations in the current score of each trajectory's group.

    That of a turn's value is of its turn; all others are of the trajectory's last answer.
    """
    parts = score_parts.c
    query = (
        select(parts.trajectory_id, parts.part, parts.explanation)
        .join(trajectories, trajectories.c.id == parts.trajectory_id)
        .join(groups, groups.c.id == trajectories.c.group_id)
        .where(
            parts.trajectory_id.in_([view.id for view in views]),
            parts.score_id == groups.c.current_score_id,
            parts.value.is_not(None),  # without a value, it explains why there is none
            parts.explanation.is_not(None),
        )
        .order_by(parts.trajectory_id, parts.part)
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    paths = {view.id: view.main_path for view in views}
    found: dict[CallChoice, list[HintPart]] = {}
    for id_, part, text in rows:
        path, of_turn = paths[id_], turn_of(part)
        number = len(path) if of_turn is None else of_turn[1]
        hint = HintPart(CRITIQUE, text)
        if text.strip() and 0 < number <= len(path) and hint not in found.setdefault(path[number - 1], []):
            found[path[number - 1]].append(hint)
    return found
