"""The training step that an attempt's group entered, where campaigns sample ahead. Older attempts have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("entered_step", sa.Integer(), nullable=True))
