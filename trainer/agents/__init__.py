"""Running the user's agent in a child process with the user's Python, and classifying why an attempt failed.

Others import `attempts` and `user_agent`; `answer` and `replay` are Hone's own agents, run by name. Refuses: the
store's tables of attempts, scenarios, judging, and the life of the process (`recorder.processes`).
"""
