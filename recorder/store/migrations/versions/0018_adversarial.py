"""The mark of adversarial scenarios, which have a separate share and a separate measure."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scenarios", sa.Column("adversarial", sa.Boolean(), server_default="0", nullable=False))
