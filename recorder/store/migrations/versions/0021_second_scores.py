"""Cross-checks by a second judge, and switches between two judges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "second_scores",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("pair", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("judge_model", sa.Text(), nullable=False),
        sa.Column("cheap_version", sa.Text(), nullable=True),
        sa.Column("strong_version", sa.Text(), nullable=True),
        sa.Column("failed", sa.Text(), nullable=True),
        sa.Column("parts", sa.Text(), nullable=True),
        sa.Column("tau", sa.Double(), nullable=True),
        *_figures(),
        sa.Column("tokens_in", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_cached", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_out", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_second_scores_group_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_second_scores_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_second_scores")),
    )
    op.create_index(op.f("ix_second_scores_group_id"), "second_scores", ["group_id"])
    of_judges = ["project_id", "alias", "recipe", "id"]
    op.create_index(op.f("ix_second_scores_project_id_alias_recipe_id"), "second_scores", of_judges)
    op.create_table(
        "judge_turns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("pair", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("judge_model", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("bound", sa.Double(), nullable=True),
        *_figures(),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_judge_turns_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judge_turns")),
        sa.UniqueConstraint(
            "project_id", "alias", "recipe", "number", name=op.f("uq_judge_turns_project_id_alias_recipe_number")
        ),
    )


def _figures() -> list[sa.Column[object]]:
    """Return the columns for the agreement of two judges over their newest groups."""
    ends: list[sa.Column[object]] = [sa.Column(name, sa.Double(), nullable=True) for name in ("mean", "low", "high")]
    return [sa.Column("groups", sa.Integer(), server_default="0", nullable=False), *ends]
