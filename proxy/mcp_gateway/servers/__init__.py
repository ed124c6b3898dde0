"""The far side of the gateway: one MCP server, its connections, and what it has to offer.

Refuses: callers, and several servers as one (`proxy.mcp_gateway.pool`). Others import `upstream`, `link` and `lists`.
"""
