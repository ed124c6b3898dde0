"""Preferences: pairs of a chosen and a rejected side, from people, from the rewards of scored groups, or from files.

Others import `candidates`, `pair_files` and `pairs`. Refuses: weights (`trainer.objectives.prefer`) and training
(`trainer.step.fits`).
"""
