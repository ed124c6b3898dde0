"""Comparison of one group's attempts: aligned turns, differences, rewards and advantages.

Owns: the comparison that pages, `/hone/v1` and `hone compare` show. Other packages import `loader` (the queries),
`attempts` (the shapes) and `judge_records` (the judges' prompts and replies). `alignment` is pure.
Refuses: judging, training, and presentation.
"""
