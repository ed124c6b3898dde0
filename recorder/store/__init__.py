"""The database: every table, how it is opened, migrated and written, and the only way in which a state changes.

Others import `recorder.store.database` (`Store`, `Project`), `recorder.store.schema`, `recorder.store.transitions`,
`recorder.store.ledger`, `recorder.store.changes` and `recorder.store.bootstrap`. Refuses: the meaning of what is
written.
"""
