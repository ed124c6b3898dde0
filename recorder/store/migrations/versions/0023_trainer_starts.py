"""What a trainer finds out when it starts: the tokens of a pass that fitted, and whether engines take its adapters."""

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
    op.create_table(
        "adapter_trials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("alias_id", sa.Text(), nullable=False),
        sa.Column("engine_name", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("manifest_sha256", sa.Text(), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["alias_id"], ["aliases.id"], name=op.f("fk_adapter_trials_alias_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_adapter_trials_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adapter_trials")),
        sa.UniqueConstraint("alias_id", name=op.f("uq_adapter_trials_alias_id")),
    )
