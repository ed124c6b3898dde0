"""hone.toml: the proxy's sections, all packages' sections as one model, where values come from, and how they are shown.

Refuses: what the settings do. Others import `sections` and `mcp`; programs and commands import
`hone`, `loading` and `showing` too.
"""
