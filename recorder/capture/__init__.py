"""Turns written: where a call belongs, the rows it becomes, and the queue that commits them in groups.

Refuses: wire formats, reading transcripts back, and what a caller does when its turn could not be written. The proxy
imports `recorder` (the face), `finder` for whose call it is, `tool_calls`.
"""
