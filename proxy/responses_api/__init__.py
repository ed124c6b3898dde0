"""The Responses API beyond a single call: earlier answers, conversations, background calls, reading and deleting.

Refuses: the format itself (`proxy.dialects.responses`). Others import `calls`, `routes` and `stored_responses`.
"""
