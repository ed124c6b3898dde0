"""An index that finds the oldest ready group, however many wait for a judge."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    ready = sa.text("state = 'ready'")
    columns = ["project_id", "ready_at", "id"]
    op.create_index("ix_groups_ready", "groups", columns, sqlite_where=ready, postgresql_where=ready)
