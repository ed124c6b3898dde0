"""A training step: scored groups in, a version out; one alias's trainer, its torch thread, and the step's report.

Others import `alias_trainer` (late, because it loads torch) and `summary`, which has the protocol `StepTrainer`.
Refuses: sampling, judging, and putting a version into service.
"""
