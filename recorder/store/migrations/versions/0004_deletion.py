"""What deleting a trajectory needs: a count of deletions, which media a node shows, and who needs a node or a blob."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from recorder.content import media

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("deletions", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "node_blobs",
        sa.Column("node_id", sa.LargeBinary(), nullable=False),
        sa.Column("blob_id", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "blob_id", name=op.f("pk_node_blobs")),
    )
    op.create_index(op.f("ix_node_blobs_blob_id"), "node_blobs", ["blob_id"], unique=False)
    op.create_index(op.f("ix_calls_prompt_node_id"), "calls", ["prompt_node_id"], unique=False)
    for column in ("tools_blob_id", "format_blob_id", "request_blob_id"):
        some = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            op.f(f"ix_calls_{column}"), "calls", [column], unique=False, sqlite_where=some, postgresql_where=some
        )
    op.create_index(op.f("ix_issued_call_id"), "issued", ["call_id"], unique=False)
    _note_media(op.get_bind())


def _note_media(connection: sa.Connection) -> None:
    """The media of nodes that were written before."""
    found = connection.execute(sa.text("select id, message from nodes where message like '%hone-blob:%'"))
    rows = [
        {"node": bytes(node), "blob": blob}
        for node, message in found
        for blob in set(media.marks(json.loads(message) if isinstance(message, str) else message))
    ]
    if rows:
        connection.execute(sa.text("insert into node_blobs (node_id, blob_id) values (:node, :blob)"), rows)
