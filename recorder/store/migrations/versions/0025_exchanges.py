"""The exchange of each answer: by it a conversation is found again whose system message changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("choices", sa.Column("exchange_id", sa.LargeBinary(), nullable=True))
    op.create_index(
        op.f("ix_choices_exchange_id"),
        "choices",
        ["exchange_id"],
        sqlite_where=sa.text("exchange_id IS NOT NULL"),
        postgresql_where=sa.text("exchange_id IS NOT NULL"),
    )
