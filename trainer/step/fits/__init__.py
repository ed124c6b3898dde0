"""Fits: training on demonstrations or on pairs alone, in epochs; and the reading of both, for fits and for steps.

Others import `job`, `source`, `report`, and the readers. Refuses: the store's side of a step (`trainer.step.runner`).
"""
