"""Before any route: the address taken off the path, keys and scopes, errors in the caller's own format.

Refuses: what is served behind it. Others import `address`, `auth` and `replies`.
"""
