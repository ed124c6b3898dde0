"""Statistics, pure: means, intervals, paired and sequential tests, agreement, advantages, charts. Refuses: the store,
and what follows from a figure.
"""
