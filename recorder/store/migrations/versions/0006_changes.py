"""Change counters for waiting processes, and the process of an open call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("topic", name=op.f("pk_changes")),
    )
    op.add_column("calls", sa.Column("process", sa.Text(), nullable=True))
