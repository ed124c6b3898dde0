"""Two proxies, two judges and two learners on one PostgreSQL, before a real engine and two stand-ins, killed at random.

`python -m benchmarks.several --minutes 10` (part of `make long`). Counted: answers that are lost, groups that are
judged or trained on twice, trajectories that left their version, and how soon an alias moves on every proxy.
"""
