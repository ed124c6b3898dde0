"""The mark of score values that no judge gave: means over trajectories omit them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("score_parts", sa.Column("unasked", sa.Boolean(), server_default="0", nullable=False))
