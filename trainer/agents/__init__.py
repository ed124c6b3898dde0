"""The user's agent, run in a child process with the user's Python, and whose fault a failed attempt was.

Refuses: the store's tables of attempts, scenarios, judging, and the process itself (`recorder.processes`).
"""
