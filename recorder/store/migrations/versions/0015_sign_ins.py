"""Sign-in tokens of the pages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_sign_ins"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_sign_ins_project_id"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_sign_ins_key_id"),
    )
