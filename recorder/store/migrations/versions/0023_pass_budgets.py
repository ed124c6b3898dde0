"""The tokens of a pass that fitted into a device's memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pass_budgets",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("base_fingerprint", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("token_budget", sa.Integer(), nullable=False),
        sa.Column("pass_budget", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_pass_budgets_project_id")),
        sa.PrimaryKeyConstraint("project_id", "base_fingerprint", "device", name=op.f("pk_pass_budgets")),
    )
