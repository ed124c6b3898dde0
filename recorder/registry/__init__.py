"""What a project has registered: API keys, aliases, versions, base fingerprints, and reports of engines and proxies.

Others import `recorder.registry.aliases`, `recorder.registry.versions` and `recorder.registry.keys`, and
`recorder.registry.alias_moves` to promote or roll back. Refuses: changing anything in an engine, and deciding when a
version is good enough.
"""
