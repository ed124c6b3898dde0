"""The roof: `hone trajectories`, `groups`, `show`, `review`, `export`, `ledger`, `delete`, `keys`, `db`: as printed.

Refuses: queries. Other packages' commands print with `terminal` and open the store with `support`.
"""
