"""Copies of a whole store: into another database (`hone db copy`) or into a file beside it (`hone db backup`).

Others import `recorder.maintenance.transfer.store_copy` and `recorder.maintenance.transfer.target`. Refuses: the
meaning of a table, migrations (`recorder.store.bootstrap`), and files other than the database.
"""
