"""Admission of every request, before any route: the address in its path, its key and scopes, and errors in the caller's
format.

Refuses: what is served behind it. Others import `address`, `auth`, `middleware`, `pages` and `replies`.
"""
