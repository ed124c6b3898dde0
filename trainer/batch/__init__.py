"""What a step trains on: trajectories as token rows, their advantages and weights, rows in packs. Pure.

Never imports torch (a test says so). Refuses: reading the store, and the loss.
"""
