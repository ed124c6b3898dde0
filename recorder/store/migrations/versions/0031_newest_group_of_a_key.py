"""The newest group under an implicit key is one row of an index, however many groups there were."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index(op.f("ix_groups_project_id_implicit_key_state"), "groups")
    which = sa.text("implicit_key IS NOT NULL")
    op.create_index(
        "ix_groups_implicit",
        "groups",
        ["project_id", "implicit_key", "state", "sequence"],
        sqlite_where=which,
        postgresql_where=which,
    )
