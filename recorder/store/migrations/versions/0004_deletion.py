"""For deletion: a count of deletions, the media of each node, and indexes of the uses of nodes and blobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

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
    """Write the media of existing nodes."""
    found = connection.execute(sa.text("select id, message from nodes where cast(message as text) like '%hone-blob:%'"))
    rows = [
        {"node": bytes(node), "blob": blob}
        for node, message in found
        for blob in set(_marks(json.loads(message) if isinstance(message, str) else message))
    ]
    if rows:
        connection.execute(sa.text("insert into node_blobs (node_id, blob_id) values (:node, :blob)"), rows)


# The mark of media in a message at this revision; `recorder.messages.media` may have another one now.


def _marks(message: dict[str, Any]) -> Iterator[bytes]:
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") != "text":
            yield from _marks_in(part)


def _marks_in(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _marks_in(inner)
    elif isinstance(value, str) and value.startswith("hone-blob:"):
        try:
            yield bytes.fromhex(value.removeprefix("hone-blob:"))
        except ValueError:  # text of the conversation that only looks like a mark
            return
