"""Which trajectories are in the drift set of their alias: kept out of training, to measure how far versions drift."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trajectories", sa.Column("drift_set_at", sa.Double(), nullable=True))
    where = sa.text("drift_set_at IS NOT NULL")
    op.create_index(
        "ix_trajectories_drift_set", "trajectories", ["alias_id", "id"], sqlite_where=where, postgresql_where=where
    )
