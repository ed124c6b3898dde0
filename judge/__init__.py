"""Rewards: RULER, verifiable reward functions, their combination, and the worker that scores groups."""
