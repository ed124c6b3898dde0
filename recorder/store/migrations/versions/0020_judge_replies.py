"""Each of several replies about one group, and the agreement of the replies of a score."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("agreement", sa.Double(), nullable=True))
    op.create_table(
        "judge_replies",
        sa.Column("score_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("judge_model", sa.Text(), nullable=False),
        sa.Column("judge_version", sa.Text(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("reply", sa.Text(), nullable=True),
        sa.Column("failed", sa.Text(), nullable=True),
        sa.Column("verdicts", sa.Text(), nullable=True),
        sa.Column("tokens_in", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_cached", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_out", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["score_id"], ["scores.id"], name=op.f("fk_judge_replies_score_id")),
        sa.PrimaryKeyConstraint("score_id", "number", name=op.f("pk_judge_replies")),
    )
