"""hone.toml: the proxy's sections, all packages' sections as one model, reading them, and showing them.

Refuses: acting on settings. Others import `sections`, `mcp` and `hone`; commands and programs import `loader`,
`display` and `toml_writer` too.
"""
