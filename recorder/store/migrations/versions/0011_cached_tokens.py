"""Prompt tokens that a judge's provider read from its cache, counted separately because they cost less."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("tokens_cached", sa.Integer(), server_default="0", nullable=False))
