"""Child processes that answer requests, their environment, signals, permissions of files, and durable folders.

Others import `child_host.py` (the parent's side), `child_environment.py`, `signals.py`, `file_modes.py` and
`durable_folders.py`. `user_code_host.py` is the child's side. The user's Python runs it by its path, so it imports
nothing of Hone, and no file next to it may have the name of a standard-library module. Refuses: the meaning of a
request, and the content of a folder.
"""
