"""The gate: what a loaded version must pass before users meet it, and how its trajectories are compared afterwards.

Refuses: loading, and moving an alias (`proxy.versions.controller` does both). Others import `examination`, `behaviour`
and `canary`.
"""
