"""Scored groups in, a version out: one alias's training, its torch thread, and what a step reports.

Refuses: sampling, judging, and putting a version into service. Others import `alias_trainer` (late: it loads torch) and
`report`, which has the protocol `StepTrainer`.
"""
