"""A campaign: sample, judge, train, measure, and again until a rule says stop.

Refuses: scoring and training themselves; it waits for the judge and drives a `StepTrainer`.
"""
