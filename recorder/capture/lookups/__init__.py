"""Whose call is this: the rules, as pure functions, and the look-ups that they need.

Refuses: writing, and the order in which a proxy asks for evidence. Others import `match` and `past`.
"""
