"""HTTP building blocks: connections and their limits, raw ASGI, compressed bodies, server-sent events, shutdown.

Refuses: knowledge of what is served.
"""
