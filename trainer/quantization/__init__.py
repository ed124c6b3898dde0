"""A copy of the base in 4 bits, which the trainer computes on where `trainer.quantize` says so.

The copy is never written: adapters are made for the base itself, and merged into it.
"""
