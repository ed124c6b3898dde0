"""Which judge is in a group's rewards. In older scores it is not known: they count as made without one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("judge_hash", sa.Text(), nullable=True))
