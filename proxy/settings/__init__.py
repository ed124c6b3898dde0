"""hone.toml: the proxy's sections, all packages' sections as one model, where values come from, and how they are shown.

Refuses: what the settings do. Others import `sections`, `mcp` and, above the rooms, `loading`.
"""
