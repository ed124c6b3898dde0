"""Engines: vLLM's command line, requests to engines, control of one replica, and other providers' models.

Refuses: which version a call gets (`proxy.versions`) and the steps of a call (`proxy.serving`). Others import `client`,
`command`, `replica`, `providers` and `answers`.
"""
