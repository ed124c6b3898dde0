"""Indexes for lists, open rows and ended trajectories, so that no page of a big store scans all of it.

They replace two indexes into which every recorded call was written.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_trajectories_newest", "trajectories", ["project_id", "id"])
    op.create_index("ix_groups_newest", "groups", ["project_id", "opened_at", "id"])
    op.create_index("ix_groups_newest_of_state", "groups", ["project_id", "state", "opened_at", "id"])
    op.drop_index("ix_trajectories_project_id_state_last_call_at", "trajectories")
    op.create_index("ix_trajectories_project_id_state_id", "trajectories", ["project_id", "state", "id"])
    op.drop_index("ix_calls_project_id_state", "calls")
    _create_some("ix_calls_open", "calls", ["project_id"], "state = 'open'")
    _create_some("ix_trajectories_ended", "trajectories", ["project_id", "ended_at"], "ended_at IS NOT NULL")
    _create_some("ix_trajectories_shadow", "trajectories", ["project_id", "id"], "origin = 'shadow'")
    op.create_index("ix_ledger_project_id_object_kind_code", "ledger", ["project_id", "object_kind", "code"])
    _create_some("ix_groups_scored", "groups", ["project_id", "id"], "current_score_id IS NOT NULL")


def _create_some(name: str, table: str, columns: list[str], which: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(which), postgresql_where=sa.text(which))
