"""Alembic's steps between the revisions of the schema. `recorder.store.migrate` runs them."""
