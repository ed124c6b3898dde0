"""OpenAI's Responses, translated to chat completions and back.

Refuses: attribution, versions, storage. Others import `dialect`, `fields`, `items` and `tools`.
"""
