"""A whole store elsewhere: copied to another database (`hone db copy`), or into a file beside it (`hone db backup`).

Refuses: what a table means, the schema's steps (`recorder.store.bootstrap`), and every file that is not the database.
Its face: `copying.copy_store`, `target.open_target`, `backup.back_up`.
"""
