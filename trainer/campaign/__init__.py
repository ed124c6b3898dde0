"""Campaigns: sample, judge, train, validate, and repeat until a stop rule applies.

Others import `loop`, `record`, `sampling`, `measurement`, `validation`, `estimate` and `stop_rules`. Refuses: scoring
and training themselves; a campaign waits for the judge and drives a `StepTrainer`.
"""
