"""Tool calls, and models' tool requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_requests",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("choice", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("match", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tool_requests_project_id")),
        sa.PrimaryKeyConstraint("call_id", "choice", "position", name=op.f("pk_tool_requests")),
    )
    op.create_index(op.f("ix_tool_requests_match_call_id"), "tool_requests", ["match", "call_id"], unique=False)
    op.create_index(op.f("ix_tool_requests_trajectory_id"), "tool_requests", ["trajectory_id"], unique=False)
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=True),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("choice", sa.Integer(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("join_source", sa.Text(), nullable=False),
        sa.Column("join_confidence", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("annotations", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tool_calls_project_id")),
        sa.ForeignKeyConstraint(["trajectory_id"], ["trajectories.id"], name=op.f("fk_tool_calls_trajectory_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_calls")),
    )
    op.create_index(op.f("ix_tool_calls_trajectory_id"), "tool_calls", ["trajectory_id"], unique=False)
    op.create_index(op.f("ix_tool_calls_call_id"), "tool_calls", ["call_id"], unique=False)
    op.create_index(
        op.f("ix_tool_calls_project_id_started_at"), "tool_calls", ["project_id", "started_at"], unique=False
    )
