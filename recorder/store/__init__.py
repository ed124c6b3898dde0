"""The database: every table, how it is opened, migrated and written, and the only way in which a state changes.

Refuses: what is written and why. Others import `database` (`Store`, the clock), `schema`, `transitions`, `ledger`.
"""
