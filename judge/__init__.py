"""Rewards: judge recipes, RULER, rubrics, rules and reward functions, and the worker that scores groups.

Owns: everything between a group that is ready and its stored score. Refuses: training, and the rows themselves
(`recorder.queue`). Imports `recorder` only.
"""
