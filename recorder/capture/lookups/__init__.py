"""Queries that attribution needs: recorded calls, client sessions, and the exact tokens of earlier calls.

Refuses: writing, and the order in which the proxy considers evidence. Others import
`recorder.capture.lookups.token_history`.
"""
