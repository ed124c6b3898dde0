"""A gate may request attempts beside several versions; and what a version's answers to the drift set are worth."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index(op.f("ix_campaigns_version_id"), "campaigns")
    op.create_index(op.f("ix_campaigns_version_id_name"), "campaigns", ["version_id", "name"], unique=True)
    op.create_table(
        "drift_scores",
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name=op.f("fk_drift_scores_version_id")),
        sa.PrimaryKeyConstraint("version_id", "trajectory_id", name=op.f("pk_drift_scores")),
    )
