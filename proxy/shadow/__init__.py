"""Shadow answers: which live calls are answered again, how an engine is asked, and the loop.

Refuses: anything on an agent's path, calling tools, and judging. Others import `shadower` and `answers`.
"""
