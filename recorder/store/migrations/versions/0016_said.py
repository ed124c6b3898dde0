"""The full-text index. Existing calls are queued, and indexed after the start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TSVECTOR

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_BESIDE = {
    "sqlite": (
        "CREATE VIRTUAL TABLE said_words USING fts5("
        "words, content='said', content_rowid='id', columnsize=0, tokenize='ascii')",
        "CREATE TRIGGER said_made AFTER INSERT ON said BEGIN"
        " INSERT INTO said_words (rowid, words) VALUES (new.id, new.words); END",
        "CREATE TRIGGER said_gone AFTER DELETE ON said BEGIN"
        " INSERT INTO said_words (said_words, rowid, words) VALUES ('delete', old.id, old.words);"
        " INSERT INTO unmerged VALUES (random()); END",
    ),
    "postgresql": ("CREATE INDEX ix_said_words ON said USING gin (words)",),
}


def upgrade() -> None:
    op.create_table(
        "said",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False, autoincrement=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("trajectory_id", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text, nullable=False),
        sa.Column("words", sa.Text().with_variant(TSVECTOR, "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_said"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_said_project_id"),
        sa.UniqueConstraint("call_id", name="uq_said_call_id"),
    )
    op.create_table(
        "unindexed",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "call_id", name="pk_unindexed"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_unindexed_project_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "unmerged",
        sa.Column("mark", sa.BigInteger, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("mark", name="pk_unmerged"),
    )
    for statement in _BESIDE[op.get_bind().dialect.name]:
        op.execute(statement)
    op.execute("INSERT INTO unindexed (project_id, call_id) SELECT project_id, id FROM calls WHERE state <> 'open'")
