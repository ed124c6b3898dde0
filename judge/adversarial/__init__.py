"""Tricks that a judge may fall for: a committed set of them, and a recipe tried on it (`hone judge check`).

Others import `check`, `kinds`, `tally` and `own`. Refuses: how a group is judged (`judge.scoring`, which is asked as
the worker asks it), the record (nothing of it is read or written), and how a check reads (`judge.commands.check_view`).
"""
