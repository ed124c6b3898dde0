"""Versions in service: routing without I/O, pins, the controller that loads, probes and moves an alias.

Refuses: training, and the rows of the registry (`recorder.registry`). Others import `in_service` for routing.
"""
