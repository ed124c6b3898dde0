"""Experiment trackers (Weights & Biases, TensorBoard, MLflow): send figures and, if enabled, transcripts to them.

Owns: the figures and their names, which settings may leave this machine, and one process for each tracker, so that a
tracker's library is never loaded in the trainer's process and cannot delay a step. Refuses: measuring, and reading
figures back. Others import `delivery` (it takes events), `event_figures` and `base`.
"""
