"""Demonstrations: recorded trajectories and rows of files as rows to imitate, and the plan of training on them.

Others import `candidates`, `conversations`, `rows` and `fit_plan`. Refuses: weights (`trainer.objectives.imitate`) and
training (`trainer.step`).
"""
