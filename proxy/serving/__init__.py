"""One generating call: read, place, ask, commit, tell. And what is passed through unrecorded.

Refuses: wire formats, attribution, what is written. Others import `call`, `calls` and `asking`.
"""
