"""What a step leaves on disk: the adapter, the checkpoint, the probe, all of it durable or absent.

Refuses: numbering versions (`recorder.registry.versions`) and training.
"""
