"""Alembic's migrations between revisions of the schema. `recorder.store.bootstrap` runs them."""
