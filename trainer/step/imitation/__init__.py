"""A trainer's demonstrations: reading them for a step, and fits on them alone.

Others import `reader` and `fit_report`. Refuses: the store's side of a step (`trainer.step.runner`).
"""
