"""Files of a step: the adapter, the checkpoint and the probe, each written durably and completely or not at all.

Others import `adapters`, `checkpoint` and `probe`. Refuses: numbering versions (`recorder.registry.versions`) and
training.
"""
