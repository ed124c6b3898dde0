"""The gateway for MCP tools at `/mcp`: several servers as one, every tool call recorded with the run it belongs to.

This folder faces callers; `servers` faces the servers behind it. Refuses: Hone's own MCP server
(`proxy.api.mcp_server`). Others import `gateway` and `calling`.
"""
