"""Notifications for operators, and how far events are read for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notifications",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("omitted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("counted_in", sa.Text(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tried_at", sa.Double(), nullable=True),
        sa.Column("try_after", sa.Double(), nullable=True),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_notifications_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifications")),
        sa.UniqueConstraint("project_id", "event", name=op.f("uq_notifications_project_id_event")),
    )
    op.create_index("ix_notifications_newest", "notifications", ["project_id", "id"])
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "ix_notifications_waiting",
        "notifications",
        ["project_id", "kind"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    op.create_table(
        "notification_cursors",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("settled_id", sa.Integer(), nullable=False),
        sa.Column("mark_id", sa.Integer(), nullable=False),
        sa.Column("marked_at", sa.Double(), nullable=False),
        sa.Column("present", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_notification_cursors_project_id")),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_notification_cursors")),
    )
