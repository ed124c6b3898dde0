"""The gateway for MCP tools at `/mcp`: several servers as one, every tool call recorded with its trajectory.

This folder serves callers; `servers` connects to the MCP servers. Refuses: Hone's own MCP server
(`proxy.api.mcp.server`). Others import `gateway`, `tool_calls`, `write_protection` and `exchange`.
"""
