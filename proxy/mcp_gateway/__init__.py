"""The gateway for MCP tools at `/mcp`: several servers as one, every tool call recorded with the run it belongs to.

Refuses: Hone's own MCP server (`proxy.api.mcp_server`). Others import `gateway` and `pool`.
"""
