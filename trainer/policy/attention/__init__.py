"""Attention over a pack, for every kind that the trainer knows: full, windows, chunks, sinks and soft caps.

`interface` registers it with transformers, `masks` reads what a layer attends to from the mask that transformers asks
for, `reach` divides queries into tiles, `scores` computes a tile. Refuses: which attention a base gets
(`trainer.policy.startup_check`).
"""
