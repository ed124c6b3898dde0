"""Faults on purpose, under live load, and a count of what they cost: `python -m benchmarks.faults`.

A kind of fault (`benchmarks.faults.kinds`) is injected many times, on one store. Hone's own programs run as processes
before a stand-in engine; clients keep a list of every answer whose end they saw; at the end the store is compared with
that list. Results are in benchmarks/results/faults.json; docs/faults.md has their table.
"""
