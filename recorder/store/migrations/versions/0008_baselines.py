"""Running baselines: which scores count for them, and the baselines of each step.

In an older store, scores without a judge request become absolute, because functions and feedback made them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("aliases", sa.Column("baseline", sa.Text(), server_default="group", nullable=False))
    op.add_column("scores", sa.Column("alias_id", sa.Text(), nullable=True))
    op.add_column("scores", sa.Column("absolute", sa.Boolean(), server_default="0", nullable=False))
    op.create_index(
        op.f("ix_scores_alias_id_recipe_hash_created_at"),
        "scores",
        ["alias_id", "recipe_hash", "created_at"],
        unique=False,
    )
    op.create_table(
        "step_baselines",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("std", sa.Double(), nullable=False),
        sa.Column("rewards", sa.Integer(), nullable=False),
        sa.Column("same_tools", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_step_baselines_step_id")),
        sa.PrimaryKeyConstraint("step_id", "trajectory_id", name=op.f("pk_step_baselines")),
    )
    scores = sa.table("scores", sa.column("group_id"), sa.column("alias_id"), sa.column("absolute", sa.Boolean()),
                      sa.column("prompt_hash"))  # fmt: skip
    groups = sa.table("groups", sa.column("id"), sa.column("alias_id"))
    of_group = sa.select(groups.c.alias_id).where(groups.c.id == scores.c.group_id).scalar_subquery()
    op.execute(sa.update(scores).values(alias_id=of_group, absolute=scores.c.prompt_hash.is_(None)))
