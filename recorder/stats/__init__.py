"""Statistics as pure functions: means, intervals, paired and sequential tests, agreement, advantages, charts.

Refuses: the store, and decisions that follow from a figure.
"""
