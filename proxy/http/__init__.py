"""HTTP building blocks: raw ASGI, server-sent events with keep-alive comments, and shutdown of running calls.

Refuses: knowledge of what is served. Others import `asgi`, `sse` and `shutdown`.
"""
