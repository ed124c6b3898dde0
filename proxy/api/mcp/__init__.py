"""The MCP server at `/hone/mcp`, for agents and assistants: its tools, their answers, and its place in the app.

Other packages import `mount`. Refuses: the actions behind the tools (`proxy.api.actions`).
"""
