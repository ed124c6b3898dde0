"""Attempts of one group side by side: where they part, how they differ, what each was worth and why.

Owns: the comparison that pages, `/hone/v1` and `hone compare` show. Others import `loading` (it is read), `comparison`
(its shapes) and `advantages`. All but `loading` is pure. Refuses: judging, training, and how any of it looks.
"""
