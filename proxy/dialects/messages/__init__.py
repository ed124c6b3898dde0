"""Anthropic's messages, translated to chat completions and back.

Refuses: attribution, versions, storage. Others import `dialect` and `fields`.
"""
