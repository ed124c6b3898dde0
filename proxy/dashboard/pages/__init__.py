"""The pages, a file each: what its address says is read, one view of the store is asked for, one template is filled.

Owns: handlers. Refuses: HTML (the templates), queries, and what every page shares (`proxy.dashboard`).
"""
