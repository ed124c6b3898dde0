"""What each objective of a step used, so that it uses a trajectory or a row of a file only so often."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uses",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("objective", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_uses_step_id")),
        sa.PrimaryKeyConstraint("step_id", "objective", "source_id", name=op.f("pk_uses")),
    )
    op.create_index(op.f("ix_uses_source_id_objective"), "uses", ["source_id", "objective"], unique=False)
