"""Tool types beyond the plain function: what becomes of each, format by format.

Owns: the one table (`table`), the schemas of tools that clients declare without one (`schemas`), free-form tools as
functions (`custom`) and chat's way of saying them (`in_chat`). Refuses: items of Responses and blocks of Messages,
which lie with their formats.
"""
