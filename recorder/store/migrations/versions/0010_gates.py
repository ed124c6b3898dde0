"""Requests of a version's gate to the learner: the version of a row of `campaigns`, and the success of its attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("version_id", sa.Text(), nullable=True))
    op.create_index(op.f("ix_campaigns_version_id"), "campaigns", ["version_id"], unique=True)
    op.add_column("attempts", sa.Column("success", sa.Double(), nullable=True))
