"""Whether what users wrote next has a part in a score's rewards. Older scores count as without."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("follow_up", sa.Boolean(), server_default="0", nullable=False))
