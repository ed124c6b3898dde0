"""What a trainer holds: the one thread with torch, a version in memory and on disk, and where its tensors are.

Refuses: computing a step (`trainer.step.passes`), the store, and leases.
"""
