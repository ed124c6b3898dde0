"""From an MCP server's URL to a better agent: tasks are generated, attempted, judged and trained on. See README.md."""
