"""The data of a step: trajectories as token rows, their advantages and weights, and rows packed. Pure.

Others import `rows`, `row_builder`, `weights`, `packing` and `layouts`. Never imports torch (a test checks this).
Refuses: reading the store, and the loss.
"""
