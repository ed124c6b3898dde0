"""Trackers of experiments (Weights & Biases, TensorBoard, MLflow): figures and, where wanted, transcripts sent to them.

Owns: which figures there are and their names, what of the settings may leave this machine, and a process for each
tracker, so that no foreign library is loaded beside a step or can hold one. Refuses: measuring, and reading figures
back. Others import `tracker` (the events' way in), `entries`, `names` and `safe`.
"""
