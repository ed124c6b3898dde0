"""The model and one update of it: attention over packed rows, logprobs, losses, the optimizer.

Others import `model` and `update`, late, because both load torch. Refuses: files, the store, and when a step is due.
"""
