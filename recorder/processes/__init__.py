"""Processes: child processes that answer requests, their environment, signals, and the modes of files.

Others import `child_host.py` (the parent's half), `child_environment.py`, `signals.py` and `file_modes.py`.
`user_code_host.py` is the child's half, and a script that the user's Python runs by its path: it imports nothing of
Hone, and beside it no file may bear the name of a module of the standard library. Refuses: what is asked of a child.
"""
