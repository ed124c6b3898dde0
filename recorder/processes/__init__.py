"""Child processes that answer requests, their environment, signals, and the permissions of files.

Others import `child_host.py` (the parent's side), `child_environment.py`, `signals.py` and `file_modes.py`.
`user_code_host.py` is the child's side. The user's Python runs it by its path, so it imports nothing of Hone, and no
file next to it may have the name of a standard-library module. Refuses: the meaning of a request.
"""
