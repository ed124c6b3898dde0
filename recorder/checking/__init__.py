"""Whether a store holds what Hone promises of it (`hone db check`): each invariant is a function, and only reads.

Others import `recorder.checking.checks`. A new invariant is a function in the file of what it is about, and one line in
`recorder.checking.checks.CHECKS`. Refuses: mending anything, and knowing why a rule is one.
"""
