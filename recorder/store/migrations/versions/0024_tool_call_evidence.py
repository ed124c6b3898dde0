"""The evidence by which a tool call finds its request later, and an index of the tool calls that wait for that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("request_match", sa.LargeBinary(), nullable=True))
    op.add_column("tool_calls", sa.Column("evidence", sa.JSON(), nullable=True))
    where = sa.text("request_match IS NOT NULL")
    op.create_index(
        "ix_tool_calls_waiting", "tool_calls", ["request_match", "id"], sqlite_where=where, postgresql_where=where
    )
