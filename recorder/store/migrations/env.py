"""Alembic's entry: runs the migrations on the connection of `recorder.store.bootstrap`, inside its transaction."""

from __future__ import annotations

from alembic import context

from recorder.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter a column
    transaction_per_migration=False,
)
context.run_migrations()
