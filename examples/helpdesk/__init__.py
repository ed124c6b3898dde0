"""The helpdesk demo's own parts: orders, tools, agent, judge and the tiny model they run on. Nothing here is part of
Hone.
"""
