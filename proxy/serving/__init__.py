"""One generating call: read, place, ask, pass on, commit, tell. And what is passed through unrecorded.

Refuses: wire formats, attribution, what is written. Others import `call` and `calls`.
"""
