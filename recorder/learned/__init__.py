"""What learning came to, for people: lines of descent, versions, steps, campaigns, what became of runs as lessons.

Refuses: what goes on now (`recorder.telling`). Others import `lines`, `whole`, `steps`, `training`. Only reads.
"""
