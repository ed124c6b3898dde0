"""Indexes for filtered lists, newest first, so that every page costs the same."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _some("ix_groups_newest_of_reason", "groups", ["project_id", "reason", "opened_at", "id"], "reason IS NOT NULL")
    op.create_index("ix_trajectories_newest_of_alias", "trajectories", ["project_id", "alias_id", "id"])
    _some("ix_trajectories_newest_of_version", "trajectories", ["version_id", "id"], "version_id IS NOT NULL")
    op.drop_index("ix_calls_trajectory_id", "calls")
    op.create_index("ix_calls_trajectory_id_attribution_source", "calls", ["trajectory_id", "attribution_source"])
    op.drop_index("ix_trajectories_project_id_session", "trajectories")
    _some("ix_trajectories_newest_of_session", "trajectories", ["project_id", "session", "id"], "session IS NOT NULL")
    _some("ix_tool_calls_failed", "tool_calls", ["project_id", "trajectory_id"], "outcome IN ('failed', 'errored')")


def _some(name: str, table: str, columns: list[str], which: str) -> None:
    where = sa.text(which)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
