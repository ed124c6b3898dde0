"""A group scored: its parts combined, the worker that takes groups and writes what came out.

Refuses: asking a model and running functions; it is given both. Others import `worker`, `score`, `bench`.
"""
