"""Totals of calls by time and by trajectory. Existing calls wait to be counted, and are counted after the start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counted_calls",
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("counted_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("call_id", name="pk_counted_calls"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_counted_calls_project_id"),
        sqlite_with_rowid=False,
    )
    where = sa.text("counted_at IS NULL")
    op.create_index(
        "ix_counted_calls_waiting",
        "counted_calls",
        ["project_id", "call_id"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_table(
        "traffic",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("step_s", sa.Integer(), nullable=False),
        sa.Column("dimension", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("durations", sa.LargeBinary(), nullable=False),
        sa.Column("first_tokens", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "step_s", "dimension", "at", "value", "origin", name="pk_traffic"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_traffic_project_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "trajectory_totals",
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("first_token_s", sa.Double(), nullable=False),
        sa.Column("first_tokens", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("trajectory_id", name="pk_trajectory_totals"),
        sa.ForeignKeyConstraint(["trajectory_id"], ["trajectories.id"], name="fk_trajectory_totals_trajectory_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "trajectory_facets",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("facet", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "facet", "value", "trajectory_id", name="pk_trajectory_facets"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_trajectory_facets_project_id"),
        sa.ForeignKeyConstraint(["trajectory_id"], ["trajectories.id"], name="fk_trajectory_facets_trajectory_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_trajectory_facets_trajectory_id", "trajectory_facets", ["trajectory_id"])
    op.execute("INSERT INTO counted_calls (call_id, project_id) SELECT id, project_id FROM calls WHERE state <> 'open'")
