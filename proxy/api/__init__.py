"""Hone's own interface: the routes of `/hone/v1`, the MCP server at `/hone/mcp`, and the actions behind both.

Refuses: agents' calls (`proxy.serving`) and users' MCP servers (`proxy.mcp_gateway`). Other packages import `routes`,
`mcp.mount`, `actions`, `status`, and from `lists` and `route_parts` what the pages share with the routes.
"""
