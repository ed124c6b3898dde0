"""Versions in service: routing without I/O, pins, and the controller that loads, probes and promotes versions.

Refuses: training, and the rows of the registry (`recorder.registry`). Others import `routing` for requests, and
`controller` to run it.
"""
