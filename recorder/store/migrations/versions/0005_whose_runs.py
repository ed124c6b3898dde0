"""The owner of a trajectory and of a group: the key family that made them. Existing rows get no owner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("keys", sa.Column("family", sa.Text(), server_default="", nullable=False))
    op.add_column("keys", sa.Column("replaces", sa.Text(), nullable=True))
    op.execute("update keys set family = id")
    op.add_column("groups", sa.Column("made_by", sa.Text(), server_default="", nullable=False))
    op.add_column("trajectories", sa.Column("made_by", sa.Text(), server_default="", nullable=False))
