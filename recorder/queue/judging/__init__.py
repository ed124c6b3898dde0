"""Rows of judging: scores, the judges' prompts and replies, cross-checks, switches between judges, rescoring.

Others import `recorder.queue.judging.scores`, `recorder.queue.judging.cross_checks` and
`recorder.queue.judging.switches`. Refuses: requests to a judge (package `judge`).
"""
