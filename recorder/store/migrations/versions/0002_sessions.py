"""The session of a trajectory: the client's name of the conversation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trajectories", sa.Column("session", sa.Text(), nullable=True))
    op.create_index(op.f("ix_trajectories_project_id_session"), "trajectories", ["project_id", "session"])


def downgrade() -> None:
    op.drop_index(op.f("ix_trajectories_project_id_session"), "trajectories")
    op.drop_column("trajectories", "session")
