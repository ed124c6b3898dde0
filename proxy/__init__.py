"""The server that agents talk to: HTTP, wire formats, attribution, the engine, the versions in service, and the command
line.
"""
