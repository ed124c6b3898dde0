"""Alembic's steps between the revisions of the schema. `recorder.store.bootstrap` runs them."""
