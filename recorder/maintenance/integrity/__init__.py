"""Integrity checks of a store (`hone db check`): each invariant is one function that only reads.

Others import `recorder.maintenance.integrity.invariants`. A new invariant is a function in the file of its subject and
one line in `recorder.maintenance.integrity.invariants.CHECKS`. Refuses: repairs.
"""
