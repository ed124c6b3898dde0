"""The gate: what a loaded version is held to before any user meets it, and what its users' runs say of it afterwards.

Refuses: loading, and moving an alias (`proxy.versions.controller` does what is said here).
"""
