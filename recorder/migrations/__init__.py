"""Alembic's steps between the revisions of the schema. `recorder.migrate` runs them."""
