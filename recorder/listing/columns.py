"""What lines of runs and of groups have in common.

Owns: the columns. Refuses: whole lines.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, String, and_, cast, select

from recorder.store.schema import aliases, groups, score_parts, versions
from recorder.work.scores import REWARD


def version_name() -> ColumnElement[str]:
    """The name of the version that a query joins."""
    owner = aliases.alias("version_alias")
    name = select(owner.c.name).where(owner.c.id == versions.c.alias_id).scalar_subquery()
    return name + "@" + cast(versions.c.number, String)


def is_reward() -> ColumnElement[bool]:
    """Whether a part is the reward in its group's current score."""
    return and_(score_parts.c.score_id == groups.c.current_score_id, score_parts.c.part == REWARD)
