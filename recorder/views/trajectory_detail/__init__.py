"""One run retold for people: its conversation turn by turn, its timeline, what became of it, its tokens. Only reads.

Others import `run` (all of it at once), `tokens` (one call's) and the shapes in `turns`, `timeline` and `standing`.
"""
