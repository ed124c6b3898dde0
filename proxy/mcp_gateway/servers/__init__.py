"""The server side of the gateway: one MCP server, its connections, and what it offers.

Refuses: callers, and several servers as one (`proxy.mcp_gateway.pool`). Others import `upstream`, `link`, `lists`,
`sessions`, `handshake` and `transport`.
"""
