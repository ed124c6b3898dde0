"""SQLite below the store: its file, and a driver that may be cancelled.

Refuses: transactions, tables and when a log is checkpointed (`recorder.store`). Others import `file` and `finishing`.
"""
