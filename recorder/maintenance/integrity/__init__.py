"""Whether a store holds what Hone promises of it (`hone db check`): each invariant is a function, and only reads.

Others import `recorder.maintenance.integrity.invariants`. A new invariant is a function in the file of what it is
about, and one line in `recorder.maintenance.integrity.invariants.CHECKS`. Refuses: mending anything, and knowing why a
rule is one.
"""
