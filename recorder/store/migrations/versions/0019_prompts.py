"""The judge's prompts of a score, and the creator and the revoker of a key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "prompts",
        sa.Column("score_id", sa.Text(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["score_id"], ["scores.id"], name=op.f("fk_prompts_score_id")),
        sa.PrimaryKeyConstraint("score_id", name=op.f("pk_prompts")),
    )
    op.add_column("keys", sa.Column("made_by", sa.Text(), nullable=True))
    op.add_column("keys", sa.Column("revoked_by", sa.Text(), nullable=True))
