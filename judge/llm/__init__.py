"""Asking a judge model: what it is shown, one request through LiteLLM, how its reply is read, and RULER on top.

Refuses: what becomes of the scores. Others import `ruler`, `prompt`, `shown`, `model`.
"""
