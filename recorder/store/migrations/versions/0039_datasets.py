"""Datasets, saved filters, and trajectories that people put into the review queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("deleted", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_datasets_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_datasets_project_id_name")),
    )
    op.create_table(
        "dataset_trajectories",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_dataset_trajectories_dataset_id")),
        sa.ForeignKeyConstraint(
            ["trajectory_id"], ["trajectories.id"], name=op.f("fk_dataset_trajectories_trajectory_id")
        ),
        sa.PrimaryKeyConstraint("dataset_id", "trajectory_id", name=op.f("pk_dataset_trajectories")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_dataset_trajectories_trajectory_id", "dataset_trajectories", ["trajectory_id"])
    op.create_table(
        "saved_filters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("list", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_saved_filters_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_filters")),
        sa.UniqueConstraint("project_id", "list", "name", name=op.f("uq_saved_filters_project_id_list_name")),
    )
    op.create_table(
        "review_requests",
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_review_requests_project_id")),
        sa.ForeignKeyConstraint(["trajectory_id"], ["trajectories.id"], name=op.f("fk_review_requests_trajectory_id")),
        sa.PrimaryKeyConstraint("trajectory_id", name=op.f("pk_review_requests")),
    )
    op.create_index("ix_review_requests_project_id_at", "review_requests", ["project_id", "at"])
