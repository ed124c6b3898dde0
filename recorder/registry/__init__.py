"""What a project has: keys, aliases, versions, the fingerprints of bases, and what engines and proxies report.

Refuses: moving anything in an engine, and deciding when a version is good enough.
"""
