"""The model and one update of it: attention over packed rows, logprobs, losses, the optimizer.

Refuses: files, the store, and deciding when a step is due.
"""
