"""Live turns answered again by Hone, to learn from: which are drawn, how an engine is asked, and the loop.

Refuses: anything on an agent's path, calling tools, and judging. Others import `shadower` and `answering`.
"""
