"""Judging as rows: scores, the judges' prompts and replies, cross-checks of two judges, switches between them,
rescoring.

Others import `recorder.queue.judging.scores`, `recorder.queue.judging.cross_checks` and
`recorder.queue.judging.switches`. Refuses: asking a judge (package `judge`).
"""
