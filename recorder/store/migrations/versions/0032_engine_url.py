"""The engine that a trajectory stays on, so that its calls find their prefix in that engine's cache."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trajectories", sa.Column("engine_url", sa.Text(), nullable=True))
