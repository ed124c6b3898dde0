"""Cached verdicts on single trajectories, by a hash of the request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "verdicts",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("verdicts", sa.Text(), nullable=False),
        sa.Column("judge_version", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_verdicts_project_id")),
        sa.ForeignKeyConstraint(["trajectory_id"], ["trajectories.id"], name=op.f("fk_verdicts_trajectory_id")),
        sa.PrimaryKeyConstraint("project_id", "hash", name=op.f("pk_verdicts")),
    )
    op.create_index(op.f("ix_verdicts_trajectory_id"), "verdicts", ["trajectory_id"], unique=False)
