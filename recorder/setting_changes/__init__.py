"""Settings that people change while Hone runs: which ones, the stored changes, and what every program reads.

Modules for others: `follower` (the current settings), `actions` (change and undo), `change_rows` (the stored changes).
Refuses: hone.toml, variables and flags (`proxy.settings.loader`), below which nothing is ever written.
"""
