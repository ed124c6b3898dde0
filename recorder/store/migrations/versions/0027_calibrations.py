"""Which judge is in a group's rewards, and how well judges agree with people.

In older scores the judge is not known: they count as made without one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("judge_hash", sa.Text(), nullable=True))
    op.create_table(
        "calibrations",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("judge_hash", sa.Text(), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("agreement", sa.Double(), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_calibrations_project_id")),
        sa.PrimaryKeyConstraint("project_id", "judge_hash", name=op.f("pk_calibrations")),
    )
