"""The columns of an alias for the watch after a promotion, with a holdback on the version before.

Live versions of an older store are not watched.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("holdback_share", "rollback_watch_s"):
        op.add_column("aliases", sa.Column(name, sa.Double(), server_default="0", nullable=False))
    op.add_column("aliases", sa.Column("watched_until", sa.Double(), nullable=True))
