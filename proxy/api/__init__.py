"""Hone's own surface: `/hone/v1` and `/hone/mcp`, and the steering behind both.

Refuses: calls of agents (`proxy.serving`) and other people's MCP servers (`proxy.mcp_gateway`). Others import
`routes`, `steering` and `mcp_mount`.
"""
