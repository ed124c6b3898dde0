"""`hone judge check`: a committed set of adversarial attempts, and the trial of a judge recipe on it.

Others import `check`, `tricks` and `user_tasks`. Refuses: scoring a group (`judge.scoring`, called as the worker calls
it), the record (nothing is read from it or written to it), and the output (`judge.commands.check_view`).
"""
