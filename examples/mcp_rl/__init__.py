"""From an MCP server's URL to a better agent: generate tasks, attempt, judge and train on them. See README.md."""
