"""The roof: what reads and keeps the record (`hone show`, `groups`, `review`, `export`, `db`, …), and how it prints.

Refuses: queries. Other packages' commands print with `terminal` and open the store with `support`.
"""
