"""Scenarios from nothing: a model writes tasks for a server's tools or a description, and code checks each one.

Refuses: calling any tool, and the form of a scenario file (`tasks`). Others import `generate`, `tools`, `asking`.
"""
