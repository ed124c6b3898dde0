"""The user's agent, run in a child process with the user's Python, and whose fault a failed attempt was.

Refuses: the store's tables of attempts, scenarios, judging. `host.py` is a script run by path: beside it no file may
bear the name of a module of the standard library.
"""
