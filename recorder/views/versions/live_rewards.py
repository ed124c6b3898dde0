"""What live traffic earned by version and task: the rounds in which a fall of the reward is looked for.

Owns: which trajectories count, and the order of the versions. Refuses: comparing rounds (`recorder.stats.falls`), and
the reward of a version as people see it.

A trajectory counts if live traffic made it for training, it completed with one version, and its reward can be compared
with those of other groups. Rewards of a ranking cannot. All are by the recipe of the newest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Final

from sqlalchemy import Select, and_, func, select

from recorder.queue.judging.scores import REWARD
from recorder.registry import ancestry, live_findings
from recorder.registry.aliases import AliasView
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.stats.falls import Round, ScenarioFigure
from recorder.store.database import Store
from recorder.store.schema import groups, score_parts, scores, trajectories

NEWEST: Final = 4000  # trajectories of the alias: bounds the cost
VERSIONS: Final = 12  # the live one and its nearest ancestors


async def live_rounds(store: Store, alias: AliasView) -> list[Round]:
    """A round for each of the live version's nearest ancestors and for itself, oldest first, its tasks as scenarios.

    Empty if the live version has none. A version that a person kept although its reward fell is the first.
    """
    if alias.live_version_id is None:
        return []
    async with store.read() as conn:
        line = [row.id for row in await conn.execute(ancestry.ancestry_ages(alias.live_version_id).limit(VERSIONS))]
        kept = await live_findings.list_kept(conn, line)
        rows = (await conn.execute(_by_task(alias, line))).all()
    newest = max((row for row in rows if row.version_id == line[0]), key=lambda row: row.newest, default=None)
    if newest is None:
        return []
    found: defaultdict[str, dict[str, ScenarioFigure]] = defaultdict(dict)
    for row in (one for one in rows if one.recipe_hash == newest.recipe_hash):
        mean = row.total / row.number
        std = math.sqrt(max(0.0, row.squares / row.number - mean * mean))
        found[row.version_id][row.task] = ScenarioFigure(row.number, mean, std)
    since = next((place for place, id_ in enumerate(line) if id_ in kept), len(line) - 1)
    return [found[id_] for id_ in reversed(line[: since + 1]) if id_ in found]


def _by_task(alias: AliasView, version_ids: list[str]) -> Select[Any]:
    """Select number, sum and sum of squares of the rewards by version, task and recipe, and the newest trajectory."""
    t = trajectories.c
    of_alias = (
        select(t.id, t.version_id, t.group_id)
        .where(t.project_id == alias.project_id, t.alias_id == alias.id)
        .where(t.purpose == Purpose.TRAIN, t.origin == Origin.LIVE, t.state == TrajectoryState.COMPLETED)
        .where(t.version_id.in_(version_ids), ~t.mixed, t.selection.is_(None))
        .order_by(t.id.desc())
        .limit(NEWEST)
        .subquery()
    )
    task = func.coalesce(groups.c.implicit_key, groups.c.external_id, groups.c.id)
    p = score_parts.c
    return (
        select(
            of_alias.c.version_id,
            task.label("task"),
            scores.c.recipe_hash,
            func.count().label("number"),
            func.sum(p.value).label("total"),
            func.sum(p.value * p.value).label("squares"),
            func.max(of_alias.c.id).label("newest"),
        )
        .select_from(of_alias)
        .join(groups, groups.c.id == of_alias.c.group_id)
        .join(scores, scores.c.id == groups.c.current_score_id)
        .join(score_parts, and_(p.score_id == scores.c.id, p.trajectory_id == of_alias.c.id, p.part == REWARD))
        .where(groups.c.campaign_id.is_(None), scores.c.absolute, p.value.is_not(None), ~p.unasked)
        .group_by(of_alias.c.version_id, task, scores.c.recipe_hash)
    )
